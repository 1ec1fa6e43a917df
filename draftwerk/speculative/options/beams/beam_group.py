"""A beam search as one sequence, which branches once its prompt is read."""

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

from draftwerk.cache.blocks import BlockPool
from draftwerk.cache.memory import SequenceMemory
from draftwerk.speculative.options.beams.search import BeamSearch
from draftwerk.speculative.options.beams.search_progress import new_progress
from draftwerk.speculative.options.extended_sequence import ExtendedSequence
from draftwerk.speculative.rounds import Row, VerifiedRow
from draftwerk.speculative.sequence import RoundPlan, Taken


@dataclass(eq=False)
class BeamGroup(ExtendedSequence):
    """The root of a search: it reads all but the last token of the prompt. The members of the
    search read that, and have the rows from then on."""

    _: KW_ONLY
    search: BeamSearch
    runs_ahead: ClassVar = False

    @property
    def unread(self) -> int:
        return self.pending - 1

    @property
    def has_output(self) -> bool:
        return self.generated > 0 or self.search.has_begun

    @property
    def row_count(self) -> int:
        return self.search.row_count

    def memories(self) -> list[SequenceMemory]:
        return [*super().memories(), *self.search.memories()]

    def entry_blocks(self, pool: BlockPool) -> int:
        return super().entry_blocks(pool) + self.search.tail_blocks(self)

    def leave(self) -> list[int]:
        return [*super().leave(), *self.search.leave(self)]

    def check(self) -> None:
        if not self.search.members:  # else its KV is in their tables
            super().check()
        self.search.check()

    def rows(self, plan: RoundPlan, count_max: int, draft_max: int) -> list[Row]:
        """Return a row that reads the prompt, or those of all members, or none."""
        if self.unread:
            return super().rows(plan, count_max, 0)
        group = self.search.plan(self, plan, draft_max)
        if group is None:
            return []
        plan.finished_ids.extend(self.search.take_finished_ids())
        plan.copies.extend(group.copies)
        plan.moves.extend(group.moves)
        return group.rows

    def take(self, parts: list[VerifiedRow], now_s: float) -> Taken:
        if not parts[0].row.options.in_group:
            return super().take(parts, now_s)
        self.times.begin_decode(now_s)
        outcome = self.search.commit(self, parts)
        self.tally.depth = self.search.beams.length_max
        if outcome is None:
            return Taken()
        self.tally.count(outcome.decision, outcome.draft)
        return Taken(tuple(new_progress(self.search, self)), outcome, self.search.beams.done)
