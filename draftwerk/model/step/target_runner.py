"""One device step of the target model: a proposal in, a verdict out, plain data both."""

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import NamedTuple

from msgspec.structs import replace

from draftwerk.machine.cpus import UNKNOWN
from draftwerk.model.batch.builder import NO_STATE, BatchBuilder
from draftwerk.model.step.backend import LoadedModel
from draftwerk.model.step.blend_rows import check_blend, copy_segments, lay_out, probe_rows
from draftwerk.model.step.given import margins
from draftwerk.model.step.head_drafts import HeadDraft, WalkedRow, draft_ahead
from draftwerk.model.step.layer_heads.followed import (
    begin_windows,
    follow_prompts,
    follow_walks,
    followed_tokens,
)
from draftwerk.model.step.pooled import pooled_sums
from draftwerk.model.step.presampled import NOTHING_PRESAMPLED, Presampled, RoundRequests
from draftwerk.model.step.report import RowReport, report_rows, topk_rows
from draftwerk.model.step.row_answers import BROKEN, broken_logits, verify
from draftwerk.model.step.row_logprobs import score_rows
from draftwerk.model.step.row_plan import (
    RowPlan,
    packed_tree,
    path_moves,
    presample_requests,
    root_request,
)
from draftwerk.model.step.row_walk import RowWalk
from draftwerk.model.step.sequences import BadRow, CachedSequences
from draftwerk.model.step.validation import check_row
from draftwerk.speculative.protocol.journal import has_moves
from draftwerk.speculative.protocol.rounds import (
    ChosenLogprob,
    Decision,
    Draft,
    Proposal,
    Row,
    Verdict,
)
from draftwerk.speculative.protocol.step_report import StepReport

UNDECIDED = Decision()
"""The decision of a row that samples nothing, or had nothing to compute."""
NO_REPORT = RowReport()
NO_HEAD_DRAFT = HeadDraft()


class StepAnswers(NamedTuple):
    """What a round's logits came to."""

    presampled: Presampled
    rows: list[WalkedRow]
    """The rows that came through, then those that failed."""
    scored: dict[int, tuple[ChosenLogprob, ...]]
    """Log-probabilities of known tokens, by the numbers of their rows."""
    pooled: dict[int, bytes | None]
    """Sums of states, by the numbers of their rows; None where they are no numbers."""
    margins: dict[int, float]
    """By number of row, of tokens that are not those given."""
    forwarded_at: float
    """When the forward pass had ended, by the runner's clock."""
    topk: tuple[int, float] = (0, 0.0)
    """Rows of logits whose best tokens were looked for, and the seconds that this took."""


class TargetRunner:
    """The target model on its device, and the sequences it knows."""

    def __init__(
        self,
        parts: LoadedModel,
        successor_count: int = 0,
        clock: Callable[[], float] = perf_counter,
        cpu: Callable[[], int] = lambda: UNKNOWN,
    ) -> None:
        """`successor_count` best next tokens are reported of every node that is computed.

        `cpu` tells where this runs: of a process of its own, whose client may run elsewhere.
        """
        self.parts = parts
        self.pages, self.vocab_size = parts.pages, parts.vocab_size
        self.backend = parts.backend
        self.successor_count = successor_count
        self.clock = clock
        self.cpu = cpu
        self.cached_sequences = CachedSequences(parts.grammars, parts.adapters)
        self.windows = None if parts.draft_head is None else parts.draft_head.windows
        if self.windows is not None:
            self.windows.clear()
        self._ended: float | None = None  # when the step before ended

    def step(self, proposal: Proposal) -> Verdict:
        """Compute one round; a row that cannot be computed fails alone."""
        begun = self.clock()
        round_ = proposal.round

        # 1. Read the rows: what they know and their drafts, laid end to end.
        self.cached_sequences.begin(round_)
        begin_windows(self.windows, round_)
        builder = BatchBuilder(self.pages.block_size, self.pages.window_first)
        pairs = zip(round_.rows, proposal.drafts, strict=True)
        rows = [self._read(builder, number, *pair) for number, pair in enumerate(pairs)]

        # 2. Copy blocks and move slots, before the model writes into them.
        if has_moves(round_):
            self.parts.journal.begin(round_)
            self.backend.copy_blocks(self.pages, round_.copies)
            self.backend.move_slots(self.pages, round_.moves)
            self.parts.journal.end(round_)
        read = [row for row in rows if isinstance(row, RowPlan)]
        deviations: dict[int, tuple[float, ...]] = {}
        if any(plan.row.blend is not None for plan in read):
            blend_begun = self.clock()
            copy_segments(self.parts, read)
            deviations = probe_rows(self.parts, read)
            begun += self.clock() - blend_begun  # no part of T(tokens, context)

        # 3 - 7. Run the model and follow its answers, where there is anything to compute.
        plans = [plan for plan in read if plan.row.samples]
        reporting = [plan for plan in read if plan.scored]
        laid_out = self.clock()
        answers = (
            self._compute(builder, plans, reporting)
            if builder.tokens
            else StepAnswers(NOTHING_PRESAMPLED, [], {}, {}, {}, laid_out)
        )
        computed = self.clock()

        # 8. Run the draft head from where the rows end: its drafts are for the next round.
        head = self.parts.draft_head
        if head is not None and self.windows is not None and builder.tokens:
            follow_prompts(self.windows, head.states[len(builder.outputs) :], read)
            follow_walks(self.windows, head.states, [row.walk for row in answers.rows])
        drafts = draft_ahead(head, answers.rows, answers.presampled, self.pages)

        decisions = [
            Decision(error=str(row)) if isinstance(row, BadRow) else UNDECIDED for row in rows
        ]
        for row in answers.rows:
            number = row.walk.plan.number
            decisions[number] = row.decision(drafts.get(number, NO_HEAD_DRAFT))
            if (margin := answers.margins.get(number)) is not None:
                decisions[number] = replace(decisions[number], margin=margin)
        for number, logprobs in answers.scored.items():
            decisions[number] = replace(decisions[number], prompt_logprobs=logprobs)
        for number, total in answers.pooled.items():
            decisions[number] = (
                Decision(error=BROKEN) if total is None else Decision(state_sum=total)
            )
        for number, found in deviations.items():
            decisions[number] = Decision(deviations=found)
        before, self._ended = self._ended, self.clock()
        gap_ms = (laid_out - before) * 1e3 if round_.continuous and before is not None else None
        return Verdict(
            round_id=round_.round_id,
            pipeline_slot=round_.pipeline_slot,
            decisions=tuple(decisions),
            report=StepReport(
                load=builder.load(),
                device_ms=(computed - begun) * 1e3,
                head_rows=sum(map(_head_rows, decisions)),
                head_ms=(self._ended - computed) * 1e3,
                forward_ms=(answers.forwarded_at - laid_out) * 1e3,
                sample_ms=(computed - answers.forwarded_at) * 1e3,
                gap_ms=gap_ms,
                begun_s=begun,
                cpu=self.cpu(),
                topk_rows=answers.topk[0],
                topk_ms=answers.topk[1] * 1e3,
            ),
        )

    def known_counts(self) -> dict[int, int]:
        """Return how many tokens it knows of each sequence."""
        known = self.cached_sequences.sequences
        return {sequence_id: len(one.tokens) for sequence_id, one in known.items()}

    def check(self) -> None:
        """Assert that what is kept of each sequence agrees."""
        self.cached_sequences.check()
        if self.windows is not None:
            self.windows.check(self.cached_sequences.sequences)

    def _compute(
        self, builder: BatchBuilder, plans: Sequence[RowPlan], reporting: Sequence[RowPlan]
    ) -> StepAnswers:
        """Do what needs the round's logits."""
        # 3. Forward: one row of logits for the last known token and every node of a sampling row.
        logits = self.parts.run(builder)
        forwarded_at = self.clock()

        # 4. Presample: what the backend answers at once, for nodes that may never be reached.
        presampled = self.backend.presample(logits, self._round_requests(plans))

        # 5. Verify: walk down every draft as far as it is right, and one token on.
        walks = [self._begin_walk(plan) for plan in plans]
        if presampled.broken:
            for walk in walks:
                walk.error = broken_logits(walk.plan, presampled)
        own = [walk for walk in walks if walk.plan.row.branch is None]
        verify(self.backend, logits, own, presampled)

        # 6. Compact: accepted paths right behind the known tokens, where no device did it already.
        if moves := _moves(walks, presampled):
            self.backend.move_slots(self.pages, moves)

        # Recurrent states go along them.
        if self.pages.states is not None:
            self.parts.advance(
                [(walk.plan.state, walk.path) for walk in walks if walk.plan.state and walk.path]
            )

        # 7. Report what is asked for beside the tokens, of the rows that came through.
        whole = [walk for walk in walks if not walk.error]
        failed = [WalkedRow(walk, NO_REPORT) for walk in walks if walk.error]
        best, topk = presampled.best, (0, 0.0)
        wanting = [*topk_rows(walk.plan for walk in whole)] if self.successor_count else []
        if wanting and not best:
            begun = self.clock()
            found = self.backend.top_tokens(logits, wanting, self.successor_count)
            best, topk = (
                dict(zip(wanting, found, strict=True)),
                (len(wanting), self.clock() - begun),
            )
        reports = report_rows(self.backend, logits, whole, best)
        scoring = [plan for plan in reporting if not plan.row.pools]
        scored = score_rows(self.backend, logits, scoring)
        rows = [*map(WalkedRow, whole, reports), *failed]
        pooled = self._pooled(builder, [plan for plan in reporting if plan.row.pools])
        close = margins(logits, whole)
        return StepAnswers(presampled, rows, scored, pooled, close, forwarded_at, topk)

    def _pooled(self, builder: BatchBuilder, plans: Sequence[RowPlan]) -> dict[int, bytes | None]:
        """Return the sums of states of the rows that pool: theirs come behind those with logits."""
        if not plans:
            return {}
        return pooled_sums(self.parts.states[len(builder.outputs) :], plans)

    def _read(self, builder: BatchBuilder, number: int, row: Row, draft: Draft) -> RowPlan | BadRow:
        """Take in a row and lay it out, or say what is wrong with it."""
        try:
            sequence = self.cached_sequences.read(row)
            check_row(row, draft, sequence, self.pages, self.vocab_size)
            if row.blend is not None:
                check_blend(row, sequence, self.parts)
        except BadRow as error:
            return error
        if row.blend is not None:
            first = lay_out(builder, row, sequence)
            return RowPlan(number, row, sequence, draft, first, self.pages.block_size)
        known = sequence.tokens[row.start : row.stop]
        scored = range(row.scored[0] - row.start, row.scored[1] - row.start)
        followed = followed_tokens(self.windows, row, draft, sequence)
        scored, pooled = (range(0), scored) if row.pools else (scored, followed)
        state = row.state or NO_STATE
        own = known, row.start, row.blocks, draft, row.samples, scored, sequence.adapter, state
        first = builder.add(*own, pooled, row.window_blocks)
        held = builder.states[-1] if row.state is not None else None
        own_states = range(len(builder.pooled) - len(pooled), len(builder.pooled))
        size = self.pages.block_size
        return RowPlan(number, row, sequence, draft, first, size, held, own_states)

    def _begin_walk(self, plan: RowPlan) -> RowWalk:
        return RowWalk.begin(plan)

    def _round_requests(self, plans: Sequence[RowPlan]) -> RoundRequests:
        requests = (request for plan in plans for request in presample_requests(plan))
        rows = topk_rows(plans) if self.successor_count else ()
        trees = map(packed_tree, plans)
        drafts = [(root_request(plan), plan.draft) for plan in plans if plan.presampled]
        return RoundRequests(requests, rows, self.successor_count, trees, drafts)


def _moves(walks: Sequence[RowWalk], presampled: Presampled) -> list[tuple[int, int]]:
    """Return the slots to be moved by the host."""
    left = [walk for walk in walks if walk.path and walk.plan.first not in presampled.moved]
    return [move for walk in left for move in path_moves(walk.plan, walk.path)]


def _head_rows(decision: Decision) -> int:
    """Return at how many places the draft head ran for a row."""
    return bool(decision.feedback.head_tree) + len(decision.head_candidates)
