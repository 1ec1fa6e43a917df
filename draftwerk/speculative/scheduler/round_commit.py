"""The commit of a verdict: each sequence takes its rows, and what ends leaves."""

from collections.abc import Sequence as Ordered
from itertools import starmap

from draftwerk.speculative.protocol.rounds import Draft, Round, Verdict, VerifiedRow
from draftwerk.speculative.requests.sequence import Sequence, SequenceProgress
from draftwerk.speculative.scheduler.running_set import RunningSet
from draftwerk.speculative.scheduler.scheduling_policy import Policy
from draftwerk.speculative.scheduler.stats import SchedulerStats


class RoundCommit:
    """Applies verdicts, and tells what each sequence's client is told of them."""

    def __init__(self, running_set: RunningSet, policy: Policy, stats: SchedulerStats) -> None:
        self._policy = policy
        self._running_set = running_set
        self._stats = stats

    def apply(
        self,
        round_: Round,
        members: Ordered[Sequence],
        verdict: Verdict,
        drafts: tuple[Draft, ...],
        now_s: float,
    ) -> list[SequenceProgress]:
        """Apply a verdict; returns the progress of every sequence that was not cancelled."""
        updates: list[SequenceProgress] = []
        begun_s = now_s - 1e-3 * verdict.report.device_ms
        parts: dict[Sequence, list[VerifiedRow]] = {}
        rows = starmap(VerifiedRow, zip(round_.rows, verdict.decisions, drafts, strict=True))
        for sequence, row in zip(members, rows, strict=True):
            parts.setdefault(sequence, []).append(row)
        # Groups come last: what single rows give back is free before.
        groups = [(one, rows) for one, rows in parts.items() if rows[0].row.branch is not None]
        for sequence, _ in groups:
            del parts[sequence]
        for sequence, rows in (*parts.items(), *groups):
            sequence.deadlines.begin_prefill(begun_s)
            sequence.in_flight -= 1
            if sequence.ended:
                self._stats.overrun_tokens += len(rows[0].decision.tokens)
            elif sequence.cancelled:
                self._running_set.end(sequence)
            elif error := next((row.decision.error for row in rows if row.decision.error), ""):
                sequence.forget()
                self._running_set.end(sequence)
                updates.append(SequenceProgress(sequence, finish_reason="error", error=error))
            else:
                updates += self._take(sequence, rows, now_s)
        return updates

    def _take(
        self, sequence: Sequence, rows: list[VerifiedRow], now_s: float
    ) -> tuple[SequenceProgress, ...]:
        """Have a sequence take its rows; returns what its client is told."""
        taken = sequence.take(rows, now_s)
        if taken.verified is not None:
            self._stats.count(taken.verified.decision, taken.verified.draft)
        for update in taken.updates:
            self._stats.generated_tokens += len(update.tokens)
        if taken.length is not None:
            self._policy.ended(sequence, taken.length)
        if taken.ends:
            self._running_set.end(sequence)
        return taken.updates
