"""One device step of the target model: a proposal in, a verdict out, plain data both."""

from collections.abc import Callable, Sequence
from time import perf_counter

from msgspec.structs import replace

from draftwerk.machine.cpus import UNKNOWN
from draftwerk.model.batch.builder import NO_STATE, BatchBuilder
from draftwerk.model.step.backend import LoadedModel
from draftwerk.model.step.presampled import Presampled, RoundRequests
from draftwerk.model.step.row_plan import (
    RowPlan,
    packed_tree,
    path_moves,
    presample_requests,
    root_request,
    topk_rows,
)
from draftwerk.model.step.row_walk import RowWalk, broken_logits, verify
from draftwerk.model.step.sequences import BadRow, CachedSequences
from draftwerk.model.step.step_option import RowOutputs, StepOption, StepProgress
from draftwerk.model.step.validation import check_row
from draftwerk.speculative.protocol.journal import has_moves
from draftwerk.speculative.protocol.rounds import Decision, Draft, Proposal, Row, Verdict

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
        self.options = options
        self.cached_sequences = CachedSequences(parts.grammars, parts.adapters)
        self._ended: float | None = None  # when the step before ended

    def step(self, proposal: Proposal) -> Verdict:
        """Compute one round; a row that cannot be computed fails alone."""
        begun = self.clock()
        round_ = proposal.round

        # 1. Read the rows: what they know and their drafts, laid end to end.
        self.cached_sequences.begin(round_)
        for option in self.options:
            option.begin(round_)
        step = StepProgress(
            round=round_,
            builder=BatchBuilder(self.pages.block_size, self.pages.window_first),
            decisions=[UNDECIDED] * len(round_.rows),
        )
        for number, pair in enumerate(zip(round_.rows, proposal.drafts, strict=True)):
            try:
                step.rows.append(self._read(step.builder, number, *pair))
            # The round goes on: what one client asks for must not fail the others.
            except BadRow as error:
                step.decisions[number] = Decision(error=str(error))

        # 2. Copy blocks and move slots, before the model writes into them.
        if has_moves(round_):
            # If this process dies before the end is noted, none can go on with these pages.
            self.parts.journal.begin(round_)
            self.backend.copy_blocks(self.pages, round_.copies)
            self.backend.move_slots(self.pages, round_.moves)
            self.parts.journal.end(round_)
        for option in self.options:
            option.prepare(step)

        # 3 - 7. Run the model and follow its answers, where there is anything to compute.
        laid_out = forwarded = self.clock()
        if step.builder.tokens:
            forwarded = self._compute(step)
        computed = self.clock()

        # 8. Draft for the next round, from where the rows end.
        if step.builder.tokens:
            for option in self.options:
                option.draft_ahead(step)

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
        for option in self.options:
            option.check(self.cached_sequences.sequences)

    def _read(self, builder: BatchBuilder, number: int, row: Row, draft: Draft) -> RowPlan:
        """Take in a row and lay it out. Raises BadRow."""
        sequence = self.cached_sequences.read(row)
        check_row(row, draft, sequence, self.pages, self.vocab_size)
        size, outputs = self.pages.block_size, RowOutputs()
        for option in self.options:
            first = option.lay_out(builder, row, sequence)
            if first is not None:
                return RowPlan(number, row, sequence, draft, first, size)
            option.add_outputs(outputs, row, draft, sequence)
        first = builder.add(
            sequence.tokens[row.start : row.stop],
            row.start,
            row.blocks,
            draft,
            row.samples,
            outputs.logits,
            sequence.adapter,
            row.state or NO_STATE,
            outputs.hidden,
            row.window_blocks,
        )
        held = builder.states[-1] if row.state is not None else None
        hidden = range(len(builder.hidden) - len(outputs.hidden), len(builder.hidden))
        return RowPlan(number, row, sequence, draft, first, size, held, hidden)

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
        # Recurrent states go along them.
        if self.pages.states is not None:
            self.parts.advance(
                [(walk.plan.state, walk.path) for walk in walks if walk.plan.state and walk.path]
            )

        # 7. Report what is wanted beside the tokens, of the rows that came through.
        for walk in walks:
            step.decisions[walk.plan.number] = walk.decision()
        step.walks = [walk for walk in walks if not walk.error]
        for option in self.options:
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
