"""Which requests are not served, or served last: deadlines that passed, promises out of reach."""

from heapq import merge
from itertools import chain
from math import inf
from typing import NamedTuple

from draftwerk.speculative.requests.sequence import Sequence
from draftwerk.speculative.requests.slo import SloPolicy
from draftwerk.speculative.scheduler.promises import (
    LateText,
    Pace,
    decoding_rows,
    expired,
    late_texts,
    may_be_late,
    rows_free_s,
    unread_prompts,
)
from draftwerk.speculative.scheduler.prompt_shares import PromptQueue
from draftwerk.speculative.scheduler.round_budget import DecodingRows, RoundBudget
from draftwerk.speculative.scheduler.running_set import RunningSet
from draftwerk.speculative.scheduler.waiting_queue import queue_key


class Rejection(NamedTuple):
    """A request that is not served, and why."""

    sequence: Sequence
    """Any of it; no text of it was delivered."""
    retry_after_s: float | None = None
    """When its promise could have been kept; None if its deadline has passed."""


class Rejections:
    """Chosen by what was promised, and how long what is ahead takes."""

    def __init__(
        self, running_set: RunningSet, budget: RoundBudget, policy: SloPolicy, rows_max: int
    ) -> None:
        self.running_set = running_set
        self.budget = budget
        self.policy = policy
        self.rows_max = rows_max

    def expires_s(self) -> float:
        """Return when the next deadline of a request without a token passes."""
        live = chain(self.running_set.waiting, self.running_set.running.values())
        due = (
            one.deadlines.expires_s
            for one in live
            if one.deadlines.expires_s < inf and not (one.begun or one.cancelled)
        )
        return min(due, default=inf)

    def chosen(self, now_s: float) -> list[Rejection]:
        """Return the requests that are to end now; others may be put behind the rest."""
        live = chain(self.running_set.waiting, self.running_set.running.values())
        rejections = [Rejection(one) for one in expired(live, now_s)]
        if self.policy == "serve":
            return rejections
        gone = {rejection.sequence.request.request_id for rejection in rejections}
        for late in self._late(now_s):
            if late.sequence.request.request_id in gone or late.sequence.cancelled:
                continue
            if self.policy == "refuse" and not late.is_out_of_reach:
                rejections.append(Rejection(late.sequence, late.late_s))
            else:
                self.running_set.demote(late.sequence)
        return rejections

    def _late(self, now_s: float) -> list[LateText]:
        waiting, running = self.running_set.waiting, self.running_set.running.values()
        if all(one.deadlines.due_s == inf or one.deadlines.demoted for one in waiting):
            return []
        reading = [one for one in running if one.unread > 1 and not one.deadlines.demoted]
        line = [*merge(sorted(reading, key=queue_key), waiting, key=queue_key)]
        decoding = decoding_rows([one for one in running if one.pending <= 1], now_s, priced=True)
        read_s = self.budget.pace(decoding, PromptQueue(unread_prompts(line))).read_s
        lengths, round_s = self.running_set.lengths, self.budget.round_s(decoding)
        others = [one for one in running if one.unread <= 1 or not may_be_late(one)]
        pace = Pace(
            read_s,
            self.budget.pace(DecodingRows(), PromptQueue([])).read_s,
            sum(read_s(one.planned, one.unread) for one in reading if not may_be_late(one)),
            rows_free_s(others, self.rows_max, round_s, lengths),
            round_s,
        )
        return late_texts(line, now_s, pace, lengths)
