"""A text whose tokens the request names: they are drafted and verified like any draft.

A verified token costs about what one of a prompt does, in a long round as in a short one. So a
short round verifies no slower, and who comes meanwhile waits for less:

    beside prompts         a token of each text, as if it decoded
    beside decoding texts  chains that make the round twice as long at most
    alone                  those, or as many as last for a third of a pause
"""

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

from draftwerk.speculative.costs.step_cost import StepCost
from draftwerk.speculative.costs.work import NO_LOAD
from draftwerk.speculative.options.extended_sequence import ExtendedSequence, with_outputs
from draftwerk.speculative.rounds import NewSequence, Row, VerifiedRow
from draftwerk.speculative.row_parts.plain import with_options
from draftwerk.speculative.sequence import RoundPlan, Taken

ROUNDS_OF_OTHERS = 2.0
"""Length of a round with chains at most, in rounds without."""
PAUSE_SHARE = 1 / 3
"""Part of a bounded pause for which a round may last while nobody waits: who comes waits for its
rest and for a round of its own."""


@dataclass(slots=True)
class ChainRoom:
    """How many forced tokens each row of such a text may carry behind its own."""

    cost: StepCost
    pause_s: float
    _plan: RoundPlan | None = None
    _room: int = 0

    def of(self, plan: RoundPlan) -> int:
        """Return it for a round, whose forced texts share it."""
        if self._plan is not plan:
            self._plan, self._room = plan, self._shared(plan)
        return self._room

    def _shared(self, plan: RoundPlan) -> int:
        if plan.unread:
            return 0
        forced = [text for text in plan.decoding if isinstance(text, ForcedText)]
        load = NO_LOAD
        for text in plan.decoding:
            load = load.with_row(len(text.tokens) - 1, text.row_count, text.row_count)
        limit_ms = ROUNDS_OF_OTHERS * self.cost.ms(load)
        if len(forced) == len(plan.decoding):
            limit_ms = max(limit_ms, PAUSE_SHARE * 1e3 * self.pause_s)
        behind = max(len(text.tokens) for text in forced)
        free = max(0, plan.tokens_max - load.tokens)
        most = self.cost.chunk_within(load, behind, free, limit_ms, outputs=1)
        return min(most // len(forced), max(0, plan.tokens_max // load.tokens - 1))


@dataclass(eq=False)
class ForcedText(ExtendedSequence):
    """A text whose draft the request names; other sources draft nothing."""

    _: KW_ONLY
    forced_tokens: tuple[int, ...]
    chain_room: ChainRoom
    runs_ahead: ClassVar = False

    def new_sequence(self) -> NewSequence:
        return with_options(super().new_sequence(), forced_tokens=self.forced_tokens)

    def rows(self, plan: RoundPlan, count_max: int, draft_max: int) -> list[Row]:
        if self.pending <= 1:
            draft_max = self.chain_room.of(plan)
        return super().rows(plan, count_max, draft_max)

    def take(self, parts: list[VerifiedRow], now_s: float) -> Taken:
        """Take in its row, which says nothing of the sources that draft for others."""
        taken, decision = super().take(parts, now_s), parts[0].decision
        updates = tuple(
            with_outputs(one, margin=decision.options.margin)
            if one.tokens and len(one.tokens) == len(decision.tokens)
            else one
            for one in taken.updates
        )
        return taken._replace(updates=updates, verified=None)
