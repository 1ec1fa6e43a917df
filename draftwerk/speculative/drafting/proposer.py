"""The proposer: fills rounds with the guesses of each sequence's draft sources.

Round --prepare--> Prepared --(the draft model)--> model drafts --finish--> one draft per row
"""

from collections.abc import Callable, Iterable
from math import inf
from typing import TYPE_CHECKING

from draftwerk.speculative.costs.roofline import Roofline
from draftwerk.speculative.costs.step_cost import MeasuredStep
from draftwerk.speculative.costs.work import StepLoad
from draftwerk.speculative.drafting.controller import Controller, RoundLoad, RowTree
from draftwerk.speculative.drafting.drafted_sequences import DraftedSequences, WantedRow
from draftwerk.speculative.drafting.group_drafts import GroupDrafting, NoGroups
from draftwerk.speculative.drafting.policy import DraftPolicy
from draftwerk.speculative.drafting.prepared import DraftedRow, Prepared
from draftwerk.speculative.drafting.rationing import DraftRationing
from draftwerk.speculative.rounds import NO_DRAFT, Draft, Round
from draftwerk.speculative.row_parts.step_report import StepReport
from draftwerk.speculative.sources.store import OutputStores
from draftwerk.speculative.sources.tree import NODES_MAX, DraftTree

if TYPE_CHECKING:
    from draftwerk.speculative.sources.sequence_noise import Gumbels

REPORTS_AT_ONCE = 4
"""Steps whose costs are learnt together."""
NO_ROUND = RoundLoad(0, 0, 0)
"""The load of a round in which nothing is drafted."""


class Proposer:
    """Turns rounds into drafts, and updates its statistics from the tokens committed in each."""

    def __init__(
        self,
        methods: tuple[str, ...],
        measured: Iterable[MeasuredStep] = (),
        stores: OutputStores | None = None,
        noise: "Gumbels | None" = None,
        policy: type[DraftPolicy] = DraftPolicy,
        roofline: Roofline | None = None,
        clock: Callable[[], float] | None = None,
        followed_max: float = inf,
        groups: GroupDrafting = NoGroups,
    ) -> None:
        """Run these sources; `measured` are steps of the target, and `roofline` is its own.

        What asking a row takes is measured by the clock, in seconds, or else taken as `ASK_MS`.
        Of a draft head that keeps something of texts, it is told of `followed_max` while it does
        not pay. `groups` draft for rows that are drafted for together.
        """
        self._clock = clock
        self._controller, self._rationing = Controller(measured, roofline), DraftRationing()
        self._policy = policy(self._controller, self._rationing)
        self._sequences = DraftedSequences(
            frozenset(methods) | {"draft"},
            OutputStores() if stores is None else stores,
            noise,
            self._controller,
            self._rationing,
            followed_max,
        )
        self._groups = groups(self._controller, self._sequences.has_head)
        # Behind a step no code is in the caches: what runs several times at once costs less.
        self._unread: list[Round] = []
        """Rounds that rested."""
        self._reports: list[StepReport] = []
        """Reports of steps that nothing was learnt from yet."""

    def drafts(self, round_: Round) -> tuple[Draft, ...]:
        """Return a draft for every row of a round, without a draft model."""
        prepared = self.prepare(round_, has_model=False)
        return self.finish(prepared, (NO_DRAFT,) * len(round_.rows))

    def prepare(self, round_: Round, has_model: bool = True) -> Prepared:
        """Learn from a round, and grow its draft trees; call it once, in the order of rounds.

        Rows whose sources are not asked have a tree where there is a draft model for it.
        """
        grouped, changed = self._groups.are_in(round_), bool(round_.finished_ids)
        # Groups fork texts, and endings drop them: both need the tokens of the rounds that rested.
        if grouped or changed:
            self._catch_up()
            self._groups.read(round_, self._sequences.text)
            self._sequences.forget(round_.finished_ids)
        rested = len(self._unread)
        if self._rationing.may_rest:
            blank = self._sequences.resting(round_)
            # Nothing was worth drafting of late: the round is noted, and read with the next that
            # does not rest. So drafting costs next to nothing where it does not pay.
            if blank is not None:
                self._rationing.rest()
                self._unread.append(round_)
                return Prepared(round_, NO_ROUND, [], blank)
        self._catch_up()
        # Timed, since asking sources takes time as well, and has to pay for it.
        begun = self._now()
        self._learn_costs(round_.report)
        read = self._sequences.read(round_)
        if not (read.sequences or grouped):
            if all(row.samples for row in round_.rows):
                self._rationing.want_nothing()
            return Prepared(round_, NO_ROUND, [], read.blank)
        self._rationing.want_something()
        row_load = _row_load(round_)
        step_ms = self._controller.cost.ms(row_load)
        row_count = max(1, row_load.tokens)  # members that are read again sample nothing yet
        chosen = self._policy.choices(read.texts, row_count, step_ms)
        asks = has_model and self._controller.may_ask_model(
            (1 + rested) * step_ms, read.opens or changed
        )
        if asks:
            self._rationing.want_something()
        rows = self._trees(round_, row_load, read.wanted(round_, chosen, asks))
        prepare_ms = (self._now() - begun) * 1e3
        if not (rows or grouped):
            if not read.opens:
                self._rationing.asking.learn_round(0, prepare_ms)
            return Prepared(round_, NO_ROUND, [], read.blank)
        load = RoundLoad(
            sum(row.token_count for row in round_.rows),
            row_load.tokens,
            sum(row.row_tree.capacity for row in rows),
            row_load,
        )
        token_ms = step_ms / row_count
        steady = not (read.opens or grouped)
        return Prepared(round_, load, rows, read.blank, token_ms, prepare_ms, steady)

    def model_lengths(self, prepared: Prepared) -> tuple[int, ...]:
        """Return how many tokens to ask of the draft model for each row; all 0: do not run it."""
        return tuple(self._policy.model_lengths(prepared))

    def finish(
        self, prepared: Prepared, model_drafts: tuple[Draft, ...], model_ms: float = 0.0
    ) -> tuple[Draft, ...]:
        """Return a draft for every row, `NO_FEEDBACK` where nothing was to be drafted.

        `model_drafts` are the draft model's, one per row, and `model_ms` what they cost.
        """
        if prepared.load is NO_ROUND:
            return tuple(prepared.blank)
        longest = max((len(draft.tokens) for draft in model_drafts), default=0)
        if longest or model_ms:
            self._controller.learn_model(longest, model_ms, prepared.unread(model_drafts))
        begun = self._now()
        drafts = self._policy.select(prepared, model_drafts, model_ms)
        if prepared.steady:
            asked_count = sum(row.guesses for row in prepared.rows)
            ms = prepared.prepare_ms + (self._now() - begun) * 1e3
            self._rationing.asking.learn_round(asked_count, ms)
        load = prepared.load.token_count + sum(len(draft.tokens) for draft in drafts)
        self._groups.fill_in(prepared.round, prepared.load.row_load, drafts, load)
        return tuple(drafts)

    def check(self) -> None:
        """Assert that nothing is kept of what is gone, and that everything kept is sound."""
        self._controller.check()
        self._rationing.check()
        self._groups.check()
        self._sequences.check()

    def _catch_up(self) -> None:
        """Learn from the rounds that rested."""
        for round_ in self._unread:
            self._learn_costs(round_.report)
            self._sequences.record(round_)
        self._unread.clear()

    def _learn_costs(self, report: StepReport) -> None:
        """Learn from some reports at once, from one of an unknown size without delay."""
        cost = self._controller.cost
        self._reports.append(report)
        if len(self._reports) < REPORTS_AT_ONCE and cost.known(report.load.tokens):
            return
        for step_report in self._reports:
            cost.learn(step_report.load, step_report.device_ms)
            self._rationing.learn(step_report)
        self._reports.clear()

    def _now(self) -> float:
        return 0.0 if self._clock is None else self._clock()

    def _trees(
        self, round_: Round, row_load: StepLoad, drafting: list[WantedRow]
    ) -> list[DraftedRow]:
        """Grow the trees of these rows."""
        if not drafting:
            return []
        sampling = [row for row in round_.rows if row.samples and not row.options.in_group]
        weights = self._controller.token_weights(
            [row.tokens_left for row in sampling],
            [row.stop for row in sampling],
            round_.occupancy,
            row_load,
        )
        by_sequence = {
            row.sequence_id: weight for row, weight in zip(sampling, weights, strict=True)
        }
        found: list[DraftedRow] = []
        for place, sequence, asked in drafting:
            row = round_.rows[place]
            room = min(row.draft_max, NODES_MAX)
            acceptance = self._controller.acceptance(sequence.noise.sampled)
            tree = sequence.tree = DraftTree(acceptance, sequence.sequence_acceptance)
            if sequence.guess(tree, room, asked):
                self._rationing.learn_right()
            context_ms = self._controller.cost.token_ms(row.stop)
            weight = by_sequence[row.sequence_id]
            row_tree = RowTree(tree, sequence.sequence_acceptance, room, weight, context_ms)
            found.append(DraftedRow(place, sequence, asked, row_tree))
        return found


def _row_load(round_: Round) -> StepLoad:
    """Return the load of the sampling rows with one token each, as if no prompt were read."""
    stops = [row.stop for row in round_.rows if row.samples]
    context = sum(stops)
    return StepLoad(len(stops), len(stops), context, context)
