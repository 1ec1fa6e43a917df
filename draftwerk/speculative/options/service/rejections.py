"""Which requests are not served, or served last: deadlines that passed, promises out of reach."""

from collections.abc import Callable
from heapq import merge
from itertools import chain
from math import inf

from draftwerk.speculative.options.service.lengths import TextLengths
from draftwerk.speculative.options.service.prompt_shares import PromptQueue
from draftwerk.speculative.options.service.round_budget import DecodingRows, RoundBudget
from draftwerk.speculative.options.service.slo_times import (
    LateRequest,
    Pace,
    decoding_rows,
    expired,
    has_begun,
    late_texts,
    may_be_late,
    promise,
    rows_free_s,
    unread_prompts,
)
from draftwerk.speculative.requests.slo import SloPolicy
from draftwerk.speculative.running_set import AGING_ROUNDS, RunningSet, queue_key
from draftwerk.speculative.sequence import Sequence, SequenceProgress

EXPIRED = "deadline_exceeded", "its text has not begun in time"
UNMET = "slo_unmet", "what was promised cannot be kept"


def rejected(
    sequence: Sequence, kind: str, reason: str, retry_after_s: float = 0.0
) -> SequenceProgress:
    """Return the last news of a sequence of which nothing was delivered."""
    return SequenceProgress(sequence, finish_reason=kind, error=reason, retry_after_s=retry_after_s)


class Rejections:
    """Chosen by what was promised, and how long what is ahead takes."""

    def __init__(
        self,
        running_set: RunningSet,
        budget: RoundBudget,
        policy: SloPolicy,
        rows_max: int,
        lengths: Callable[[], TextLengths | None],
    ) -> None:
        self._lengths = lengths
        self.running_set = running_set
        self.budget = budget
        self.policy = policy
        self.rows_max = rows_max

    def expires_s(self) -> float:
        """Return when the next deadline of a request without a token passes."""
        live = chain(self.running_set.waiting, self.running_set.running.values())
        due = (
            promise(one).expires_s
            for one in live
            if promise(one).expires_s < inf and not (has_begun(one) or one.cancelled)
        )
        return min(due, default=inf)

    def chosen(self, now_s: float) -> list[SequenceProgress]:
        """Return the requests that are to end now; others may be put behind the rest."""
        live = chain(self.running_set.waiting, self.running_set.running.values())
        rejections = [rejected(one, *EXPIRED) for one in expired(live, now_s)]
        if self.policy == "serve":
            return rejections
        gone = {rejection.sequence.request.request_id for rejection in rejections}
        for late in self._late(now_s):
            if late.sequence.request.request_id in gone or late.sequence.cancelled:
                continue
            if self.policy == "refuse" and not late.is_out_of_reach:
                rejections.append(rejected(late.sequence, *UNMET, late.late_s))
            else:
                self._demote(late.sequence)
        return rejections

    def _demote(self, sequence: Sequence) -> None:
        """Put a sequence without a token behind those of its priority: once, or it might starve.

        The blocks that it has it keeps.
        """
        assert not promise(sequence).demoted, "put back again"
        promise(sequence).demoted = True
        waits = sequence.sequence_id not in self.running_set.running
        if waits:
            self.running_set.waiting.remove(sequence)
        sequence.queue_key += AGING_ROUNDS
        if waits:
            self.running_set.waiting.add(sequence)

    def _late(self, now_s: float) -> list[LateRequest]:
        waiting, running = self.running_set.waiting, self.running_set.running.values()
        if all(promise(one).due_s == inf or promise(one).demoted for one in waiting):
            return []
        reading = [one for one in running if one.unread > 1 and not promise(one).demoted]
        line = [*merge(sorted(reading, key=queue_key), waiting, key=queue_key)]
        decoding = decoding_rows([one for one in running if one.pending <= 1], now_s, priced=True)
        read_s = self.budget.pace(decoding, PromptQueue(unread_prompts(line))).read_s
        lengths, round_s = self._lengths(), self.budget.round_s(decoding)
        others = [one for one in running if one.unread <= 1 or not may_be_late(one)]
        pace = Pace(
            read_s,
            self.budget.pace(DecodingRows(), PromptQueue([])).read_s,
            sum(read_s(one.planned, one.unread) for one in reading if not may_be_late(one)),
            rows_free_s(others, self.rows_max, round_s, lengths),
            round_s,
        )
        return late_texts(line, now_s, pace, lengths)
