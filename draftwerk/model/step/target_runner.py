"""One device step of the target model: a proposal in, a verdict out, plain data both.

What rows want beside their tokens is attached, each a `StepOption`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from msgspec.structs import replace
from torch import Tensor

from draftwerk.machine.cpus import UNKNOWN
from draftwerk.model.batch.builder import BatchBuilder
from draftwerk.model.step.loaded_model import LoadedModel
from draftwerk.model.step.presampled import NOTHING_PRESAMPLED, Presampled, RoundRequests
from draftwerk.model.step.row_walk import (
    RowPlan,
    RowWalk,
    broken_logits,
    packed_tree,
    path_moves,
    presample_requests,
    root_request,
    topk_rows,
    verify,
)
from draftwerk.model.step.sequences import BadRow, CachedSequence, CachedSequences
from draftwerk.model.step.validation import check_row
from draftwerk.speculative.protocol.journal import has_moves
from draftwerk.speculative.rounds import Decision, Draft, Proposal, Round, Row, Verdict
from draftwerk.speculative.row_parts.plain import with_options
from draftwerk.speculative.row_parts.step_report import NO_STEP, StepReport


@dataclass(slots=True)
class RowOutputs:
    """Parts of a row in a batch beside its tokens and the outputs of its last one."""

    logits: range = range(0)
    """Known tokens, by index, whose logits are wanted."""
    hidden: range = range(0)
    """Hidden states alone."""
    columns: dict[str, Any] = field(default_factory=dict[str, Any])
    """Whatever else the batch has of the row, by the names that its builder knows."""
    tables: tuple[tuple[int, ...], ...] = ()
    """Further block tables that it writes by."""


@dataclass(slots=True, kw_only=True)
class StepProgress:
    """A step under way."""

    round: Round
    builder: BatchBuilder
    decisions: list[Decision]
    """One a row, by its number."""
    rows: list[RowPlan] = field(default_factory=list[RowPlan])
    """Rows that can be computed."""
    aside_s: float = 0.0
    """Time that is no part of T(tokens, context)."""
    report: StepReport = NO_STEP
    logits: Tensor | None = None
    """None where there was nothing to compute."""
    presampled: Presampled = NOTHING_PRESAMPLED
    walks: list[RowWalk] = field(default_factory=list[RowWalk])
    """Rows that sample, and came through."""

    def tell(self, plan: RowPlan, **fields: Any) -> None:
        """Add to what is decided of a row."""
        self.decisions[plan.number] = replace(self.decisions[plan.number], **fields)

    def tell_option(self, plan: RowPlan, **options: Any) -> None:
        """Add to what options decide and report of a row."""
        self.decisions[plan.number] = with_options(self.decisions[plan.number], **options)

    def fail(self, walk: RowWalk, error: str) -> None:
        """Have a row fail alone."""
        self.decisions[walk.plan.number] = Decision(error=error)
        self.walks.remove(walk)


class StepOption:
    """Something that rows may want of a step beside their tokens; it overrides what it needs.

    begin ── lay_out / add_outputs, laid_out ── prepare ── model ── follow, report ── draft_next
    (once)   (a row at a time)                  (the round)         (the time behind is no step's)
    """

    def begin(self, round_: Round) -> None:
        """Take in a round before its rows are read."""

    def lay_out(self, builder: BatchBuilder, row: Row, sequence: CachedSequence) -> int | None:
        """Lay a row out in another way; returns its first row of logits, or None for one that is
        none of its own. Raises BadRow."""
        return None

    def add_outputs(
        self, outputs: RowOutputs, row: Row, draft: Draft, sequence: CachedSequence
    ) -> None:
        """Add what it wants of a row. Raises BadRow."""

    def laid_out(self, builder: BatchBuilder, plan: RowPlan) -> None:
        """Take in a row that has just been added to the batch."""

    def prepare(self, step: StepProgress) -> None:
        """Prepare what the model reads: blocks were copied, and nothing is computed yet."""

    def follow(self, walks: Sequence[RowWalk]) -> None:
        """Take what it keeps of texts along the accepted paths."""

    def report(self, step: StepProgress) -> None:
        """Add to the decisions of the rows what follows from their logits."""

    def draft_next(self, step: StepProgress) -> None:
        """Draft for the next round from where the rows end."""

    def check(self, sequences: Mapping[int, CachedSequence]) -> None:
        """Assert that what it keeps of sequences agrees with what is known of them."""


UNDECIDED = Decision()
"""The decision of a row that samples nothing, or had nothing to compute."""


class TargetRunner:
    """The target model on its device, and the sequences it knows."""

    row_walk: type[RowWalk] = RowWalk
    """The rule of acceptance, for which `validation.distribution` plants a faulty one."""

    def __init__(
        self,
        parts: LoadedModel,
        successor_count: int = 0,
        clock: Callable[[], float] = perf_counter,
        cpu: Callable[[], int] = lambda: UNKNOWN,
        options: Sequence[StepOption] = (),
    ) -> None:
        """`successor_count` best next tokens are wanted of every node that is computed.

        `cpu` tells where this runs: of a process of its own, whose client may run elsewhere.
        """
        self.parts = parts
        self.pages, self.vocab_size = parts.pages, parts.vocab_size
        self.backend = parts.backend
        self.successor_count = successor_count
        self.clock = clock
        self.cpu = cpu
        # Only what overrides a hook is called: fifty calls that do nothing would take a twentieth
        # of a millisecond of every step.
        self._options = {
            hook: [option for option in options if getattr(type(option), hook) is not plain]
            for hook, plain in vars(StepOption).items()
        }
        self.cached_sequences = CachedSequences(parts.grammars)
        self._ended: float | None = None  # when the step before ended

    def step(self, proposal: Proposal) -> Verdict:
        """Compute one round; a row that cannot be computed fails alone."""
        begun = self.clock()
        round_ = proposal.round

        # 1. Read the rows: what they know and their drafts, laid end to end.
        self.cached_sequences.begin(round_)
        for option in self._options["begin"]:
            option.begin(round_)
        decisions = [UNDECIDED] * len(round_.rows)
        step = StepProgress(round=round_, builder=self.parts.builder(), decisions=decisions)
        for number, pair in enumerate(zip(round_.rows, proposal.drafts, strict=True)):
            try:
                step.rows.append(self._read(step.builder, number, *pair))
            # The round goes on: what one client asks for must not fail the others.
            except BadRow as error:
                step.decisions[number] = Decision(error=str(error))

        # 2. Copy blocks and move slots, before the model writes into them.
        if has_moves(round_):
            # If this process dies before its end is noted, none can go on with these pages.
            self.parts.move(round_)
        for option in self._options["prepare"]:
            option.prepare(step)

        # 3 - 7. Run the model and follow its answers, where there is anything to compute.
        laid_out = forwarded = self.clock()
        if step.builder.tokens:
            forwarded = self._compute(step)
        computed = self.clock()

        # 8. Draft for the next round, from where the rows end.
        if step.builder.tokens:
            for option in self._options["draft_next"]:
                option.draft_next(step)

        # After the draft head: its time is no gap of the device, though it is no part of the step.
        previous, self._ended = self._ended, self.clock()
        followed = previous if round_.continuous else None  # the step that this one follows at once
        return Verdict(
            round_id=round_.round_id,
            pipeline_slot=round_.pipeline_slot,
            decisions=tuple(step.decisions),
            report=replace(
                step.report,
                load=step.builder.load(),
                device_ms=(computed - begun - step.aside_s) * 1e3,
                head_ms=(self._ended - computed) * 1e3,
                forward_ms=(forwarded - laid_out) * 1e3,
                sample_ms=(computed - forwarded) * 1e3,
                gap_ms=None if followed is None else (laid_out - followed) * 1e3,
                begun_s=begun + step.aside_s,
                cpu=self.cpu(),
            ),
        )

    def known_counts(self) -> dict[int, int]:
        """Return how many tokens it knows of each sequence."""
        known = self.cached_sequences.sequences
        return {sequence_id: len(sequence.tokens) for sequence_id, sequence in known.items()}

    def check(self) -> None:
        """Assert that what is kept of each sequence agrees."""
        self.cached_sequences.check()
        for option in self._options["check"]:
            option.check(self.cached_sequences.sequences)

    def _read(self, builder: BatchBuilder, number: int, row: Row, draft: Draft) -> RowPlan:
        """Take in a row and lay it out. Raises BadRow."""
        sequence = self.cached_sequences.read(row)
        check_row(row, draft, sequence, self.pages, self.vocab_size)
        size, outputs = self.pages.block_size, RowOutputs()
        for option in self._options["lay_out"]:
            if (first := option.lay_out(builder, row, sequence)) is not None:
                return RowPlan(number, row, sequence, draft, first, size)
        for option in self._options["add_outputs"]:
            option.add_outputs(outputs, row, draft, sequence)
        first = builder.add(
            sequence.tokens[row.start : row.stop],
            row.start,
            row.blocks,
            draft,
            row.samples,
            outputs.logits,
            outputs.hidden,
            **outputs.columns,
        )
        hidden = range(len(builder.hidden) - len(outputs.hidden), len(builder.hidden))
        plan = RowPlan(number, row, sequence, draft, first, size, outputs.tables, hidden)
        for option in self._options["laid_out"]:
            option.laid_out(builder, plan)
        return plan

    def _compute(self, step: StepProgress) -> float:
        """Do what needs the round's logits; returns when the forward pass had ended."""
        # 3. Forward: one row of logits for the last known token and every node of a sampling row.
        step.logits = logits = self.parts.run(step.builder)
        forwarded = self.clock()

        # 4. Presample: what the backend answers at once, for nodes that may never be reached.
        plans = [plan for plan in step.rows if plan.row.samples]
        step.presampled = presampled = self.backend.presample(logits, self._requests(plans))

        # 5. Verify: walk down every draft as far as it is right, and one token on.
        walks = [self.row_walk.begin(plan) for plan in plans]
        if presampled.broken:
            for walk in walks:
                walk.error = broken_logits(walk.plan, presampled)
        verify(self.backend, logits, [walk for walk in walks if walk.plan.decides], presampled)

        # 6. Compact: accepted paths right behind the known tokens, where no device did it already.
        if moves := _moves(walks, presampled):
            self.backend.move_slots(self.pages, moves)
        for option in self._options["follow"]:
            option.follow(walks)

        # 7. Report what is wanted beside the tokens, of the rows that came through.
        for walk in walks:
            step.decisions[walk.plan.number] = walk.decision()
        step.walks = [walk for walk in walks if not walk.error]
        for option in self._options["report"]:
            option.report(step)
        return forwarded

    def _requests(self, plans: Sequence[RowPlan]) -> RoundRequests:
        requests = (request for plan in plans for request in presample_requests(plan))
        rows = topk_rows(plans) if self.successor_count else ()
        trees = map(packed_tree, plans)
        drafts = [(root_request(plan), plan.draft) for plan in plans if plan.presampled]
        return RoundRequests(requests, rows, self.successor_count, trees, drafts)


def _moves(walks: Sequence[RowWalk], presampled: Presampled) -> list[tuple[int, int]]:
    """Return the slots to be moved by the host."""
    left = [walk for walk in walks if walk.path and walk.plan.first not in presampled.moved]
    return [move for walk in left for move in path_moves(walk.plan, walk.path)]
