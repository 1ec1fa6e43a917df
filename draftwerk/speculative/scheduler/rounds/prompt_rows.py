"""The prompts of a round: those that are read, and waiting ones that are admitted in their turn."""

from collections import deque
from collections.abc import Iterable
from heapq import merge
from itertools import chain

from draftwerk.speculative.requests.sequence import Sequence
from draftwerk.speculative.scheduler.rounds.round_plan import RoundPlan
from draftwerk.speculative.scheduler.rounds.shared_prefixes import awaits_prefix
from draftwerk.speculative.scheduler.running_set import RunningSet
from draftwerk.speculative.scheduler.waiting_queue import queue_key


class PromptRows:
    """Plans the rows that read prompts."""

    def __init__(self, running_set: RunningSet, rows_max: int) -> None:
        self.running_set = running_set
        self.rows_max = rows_max

    def reading(self) -> Iterable[Sequence]:
        """Return those whose prompts are read or wait to be, in the order of reading."""
        running = self.running_set.running.values()
        reading = [s for s in running if s.unread > 1 and not s.fetching]
        return merge(sorted(reading, key=queue_key), self._entering(), key=queue_key)

    def wanted(self, plan: RoundPlan) -> int:
        """Return how many tokens prompts could have read in a round, up to all of it."""
        running, wanted, most = self.running_set.running, 0, plan.tokens_max
        for sequence in chain(running.values(), self._entering()):
            if sequence.fetching:
                continue
            if sequence.pending > 1 and (plan.before or not sequence.in_flight):
                wanted += sequence.unread
                if wanted >= most:
                    return most
        return wanted

    def plan(self, plan: RoundPlan, ready: Iterable[Sequence]) -> None:
        """Read prompts in the order of the queue, and admit waiting sequences in their turn."""
        waiting, running = self.running_set.waiting, self.running_set.running
        reading = deque(sorted(ready, key=queue_key))
        blocked: list[Sequence] = []
        may_admit = True
        while plan.tokens_left > 0:
            may_admit = may_admit and len(running) < self.rows_max
            first = waiting.first if may_admit else None
            if first is not None and not (reading and reading[0].queue_key <= first.queue_key):
                sequence = waiting.take()
                if self._is_held(sequence):
                    blocked.append(sequence)  # one that need not wait for that may overtake it
                elif not self.running_set.admit(sequence):
                    blocked.append(sequence)
                    may_admit = False  # no other overtakes a sequence that finds no room
                elif not sequence.fetching:
                    plan.begin(sequence)
            elif reading:
                sequence = reading.popleft()
                if sequence.sequence_id in running:  # no earlier row has preempted it
                    plan.add_chunk(sequence)
            else:
                break
        waiting.requeue(blocked)

    def _entering(self) -> Iterable[Sequence]:
        """Return those that wait and may enter a round: none while all rows are taken."""
        is_full = len(self.running_set.running) >= self.rows_max
        return () if is_full else self.running_set.waiting

    def _is_held(self, sequence: Sequence) -> bool:
        """Return whether a sequence waits for something else than room: the choice that reads its
        prompt, or a prompt that begins like it."""
        if sequence.leader is not None and not sequence.leader.prefilled:
            return True
        return awaits_prefix(sequence, self.running_set.running.values())
