"""Rounds drafted where they are computed: beside the target, which knows its newest tokens first.

Round --resolve--> ordinary rows --draft--> Proposal --(the target)--> Verdict, with its drafts

A round that was planned while another one ran can be drafted for only here, once that one has
ended; what the target tells the draft sources stays in its process.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter

from msgspec.structs import replace

from draftwerk.speculative.drafting.proposer import Proposer
from draftwerk.speculative.protocol.continuations import NOT_COMPUTED, Continuations, spread
from draftwerk.speculative.rounds import NO_DRAFT, Decision, Draft, Proposal, Round, Row, Verdict
from draftwerk.speculative.row_parts.feedback import NOTHING_LEARNED, Feedback
from draftwerk.speculative.row_parts.step_report import NO_STEP, StepReport


@dataclass(slots=True)
class DraftingStep:
    """A target with its draft sources; it takes proposals without drafts."""

    proposer: Proposer
    verify: Callable[[Proposal], Verdict]
    model: Callable[[Round], tuple[Draft, ...]] | None = None
    """The draft model, which is told of every round; `draft_max` is what is asked of it."""
    clock: Callable[[], float] = perf_counter
    continuations: Continuations = field(default_factory=Continuations)
    _feedback: dict[int, Feedback] = field(default_factory=dict[int, Feedback])
    """Feedback on each sequence's newest decision, until its next row."""
    _report: StepReport = NO_STEP

    def step(self, proposal: Proposal) -> Verdict:
        """Draft for a round and compute it."""
        planned = proposal.round
        for sequence_id in planned.finished_ids:
            self._feedback.pop(sequence_id, None)
        resolved = self.continuations.resolve(planned)
        rows = resolved.round.rows
        if self._feedback:
            rows = tuple(map(self._with_feedback, rows))
        round_ = replace(resolved.round, rows=rows, report=self._report)
        begun = self.clock()
        drafts = self._drafts(round_)
        draft_ms = (self.clock() - begun) * 1e3
        verdict = self.verify(Proposal(round_, drafts))
        # The next round may have been planned already, behind these decisions.
        self.continuations.learn(resolved, verdict.decisions)
        self._report = replace(verdict.report, draft_ms=draft_ms)
        decisions = verdict.decisions
        # Feedback is large, and both who writes and who reads it are here: the server gets none.
        if [decision for decision in decisions if decision.feedback != NOTHING_LEARNED]:
            decisions = tuple(map(self._keep_feedback, rows, decisions))
        return replace(
            verdict,
            decisions=spread(resolved, planned, decisions, NOT_COMPUTED),
            drafts=spread(resolved, planned, drafts, NO_DRAFT),
            report=self._report,
        )

    def check(self, known: Mapping[int, int]) -> None:
        """Assert that nothing is kept of what is gone.

        `known` has the count of tokens of each sequence that the target knows.
        """
        self.proposer.check()
        self.continuations.check(known)
        assert self._feedback.keys() <= known.keys(), "feedback is kept of a sequence that is gone"

    def _drafts(self, round_: Round) -> tuple[Draft, ...]:
        proposer = self.proposer
        if self.model is None:
            return proposer.drafts(round_)
        # The other sources guess first: the model is run only where it is worth its time beside
        # them.
        prepared = proposer.prepare(round_)
        wanted = proposer.model_lengths(prepared)
        begun = self.clock()
        drafts = self.model(limited(round_, wanted))
        model_ms = (self.clock() - begun) * 1e3 if any(wanted) else 0.0
        return proposer.finish(prepared, drafts, model_ms)

    def _with_feedback(self, row: Row) -> Row:
        feedback = self._feedback.pop(row.sequence_id, None)
        return row if feedback is None else replace(row, feedback=feedback)

    def _keep_feedback(self, row: Row, decision: Decision) -> Decision:
        """Keep what is for the draft sources alone; return the decision without it."""
        if decision.feedback == NOTHING_LEARNED:
            return decision
        self._feedback[row.sequence_id] = decision.feedback
        return replace(decision, feedback=NOTHING_LEARNED)


def limited(round_: Round, wanted: Sequence[int]) -> Round:
    """Return the round with room for as many drafts as are wanted of each row."""
    pairs = zip(round_.rows, wanted, strict=True)
    return replace(round_, rows=tuple(replace(row, draft_max=count) for row, count in pairs))
