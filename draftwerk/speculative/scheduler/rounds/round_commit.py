"""What a verdict changes: texts, blocks and ends of the sequences that its round was of."""

from collections.abc import Sequence as Ordered

from draftwerk.speculative.beams.members import VerifiedRow
from draftwerk.speculative.beams.root import SearchRoot
from draftwerk.speculative.beams.search_progress import new_progress
from draftwerk.speculative.protocol.rounds import Decision, Draft, Round, Row, Verdict
from draftwerk.speculative.requests.read_sequence import ReadSequence
from draftwerk.speculative.requests.sequence import Sequence, keep
from draftwerk.speculative.requests.sequence_progress import SequenceProgress, origins
from draftwerk.speculative.requests.tally import ScoredTokens
from draftwerk.speculative.scheduler.lengths import kind_of
from draftwerk.speculative.scheduler.rounds.blended_rows import only_blends
from draftwerk.speculative.scheduler.running_set import RunningSet
from draftwerk.speculative.scheduler.stats import SchedulerStats


class RoundCommit:
    """Applies verdicts, and tells what each sequence's client is told of them."""

    def __init__(self, running_set: RunningSet, stats: SchedulerStats) -> None:
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
        searches: dict[SearchRoot, list[VerifiedRow]] = {}
        decided = zip(members, round_.rows, verdict.decisions, drafts, strict=True)
        begun_s = now_s - 1e-3 * verdict.report.device_ms
        for sequence, row, decision, draft in decided:
            sequence.deadlines.begin_prefill(begun_s)
            if row.branch is not None:
                assert isinstance(sequence, SearchRoot)
                searches.setdefault(sequence, []).append(VerifiedRow(row, decision, draft))
                continue
            sequence.in_flight -= 1
            if sequence.ended:
                self._stats.overrun_tokens += len(decision.tokens)
            elif sequence.cancelled:
                self._running_set.end(sequence)
            elif decision.error:
                sequence.forget()
                self._running_set.end(sequence)
                updates.append(SequenceProgress(sequence, (), (), (), "error", decision.error))
            elif only_blends(sequence, row, decision):
                continue
            elif row.samples:
                sequence.deadlines.begin_decode(now_s)
                scored = sequence.score(row, decision.prompt_logprobs)
                updates.append(self._advance(sequence, decision, draft, scored))
                count = sequence.generated - sequence.request.written_count
                sequence.deadlines.keep_time(count, now_s)
            else:
                keep(sequence, row.stop)
                if isinstance(sequence, ReadSequence):
                    updates.extend(self._read(sequence, row, decision, now_s))
                elif scored := sequence.score(row, decision.prompt_logprobs):
                    updates.append(SequenceProgress(sequence, (), (), (), scored=scored))
        for sequence, parts in searches.items():
            sequence.in_flight -= 1
            sequence.deadlines.begin_decode(now_s)
            updates.extend(self._advance_search(sequence, parts))
        return updates

    def _read(
        self, sequence: ReadSequence, row: Row, decision: Decision, now_s: float
    ) -> list[SequenceProgress]:
        """Take in what a row of a prompt has come to that is not continued; returns its end."""
        found = sequence.read(row, decision)
        if found is None:
            return []
        sequence.deadlines.begin_decode(now_s)
        self._running_set.end(sequence)
        return [SequenceProgress(sequence, (), (), (), "stop", read_prompt=found)]

    def _advance(
        self, sequence: Sequence, decision: Decision, draft: Draft, scored: ScoredTokens | None
    ) -> SequenceProgress:
        """Append what the target decided; returns what its client is told."""
        assert decision.tokens, "a row was left out whose text goes on"
        kept, finish_reason = self._extend(sequence, decision)
        if not sequence.request.given:
            self._stats.count(decision, draft)
        sequence.tally.count(decision, draft)
        self._stats.generated_tokens += kept
        if finish_reason and self._running_set.lengths is not None:
            self._running_set.lengths.learn(sequence.generated, kind_of(sequence))
        return SequenceProgress(
            sequence,
            decision.tokens[:kept],
            origins(decision, draft)[:kept],
            decision.logprobs[:kept],
            finish_reason,
            scored=scored,
            margin=decision.margin if kept == len(decision.tokens) else None,
        )

    def _extend(self, sequence: Sequence, decision: Decision) -> tuple[int, str]:
        """Append decided tokens; the last one's KV is computed in the next round.

        Returns how many were kept and the finish reason.
        """
        stop = len(sequence.tokens)
        kept, finish_reason = sequence.extend(decision.tokens)
        sequence.feedback = decision.feedback
        keep(sequence, min(stop + len(decision.path), len(sequence.tokens)))
        if sequence.in_flight:  # a row that continues this one: the device knows the new tokens
            sequence.planned = sequence.sent_count = len(sequence.tokens)
        else:
            sequence.planned = sequence.computed
        if finish_reason:
            self._running_set.end(sequence)
        return kept, finish_reason

    def _advance_search(self, root: SearchRoot, parts: list[VerifiedRow]) -> list[SequenceProgress]:
        """Apply the rows of a beam search; returns its progress."""
        error = next((part.decision.error for part in parts if part.decision.error), "")
        if root.cancelled or error:
            self._running_set.end(root)
            return [] if root.cancelled else [SequenceProgress(root, (), (), (), "error", error)]
        outcome = root.search.commit(root, parts)
        if outcome is None:
            return []
        self._stats.count(outcome.decision, outcome.draft)
        root.tally.count(outcome.decision, outcome.draft)
        updates = new_progress(root.search, root)
        self._stats.generated_tokens += sum(len(progress.tokens) for progress in updates)
        if root.search.beams.done:
            self._running_set.end(root)
        return updates
