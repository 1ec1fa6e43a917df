"""The prompts of a round: those that are read, and waiting ones that are admitted in their turn."""

from collections.abc import Callable, Iterable, Iterator
from heapq import merge, nsmallest

from draftwerk.speculative.options.service.overtaking import Overtaking
from draftwerk.speculative.options.service.prompt_shares import PromptQueue, next_credit, rank
from draftwerk.speculative.options.service.shared_prefixes import awaits_prefix
from draftwerk.speculative.options.service.slo_times import unread_prompt
from draftwerk.speculative.running_set import RunningSet, queue_key
from draftwerk.speculative.sequence import (
    RoundPlan,
    Sequence,
    awaits_leader,
    known_slots,
)


class PromptRows:
    """Plans the rows that read prompts."""

    def __init__(
        self,
        running_set: RunningSet,
        rows_max: int,
        weight: Callable[[int], float],
        in_order: bool,
        overtaking: Overtaking,
    ) -> None:
        """`weight` is what a token behind so many others costs, in tokens behind none; `in_order`
        says that prompts are read one after the other."""
        self.weight = weight
        self.running_set = running_set
        self.rows_max = rows_max
        self.credit = None if in_order else 0.0
        """Tokens that may be read out of order beyond their part: see `prompt_shares`."""
        self.overtaking = overtaking
        self._blocked: Sequence | None = None
        """The first that found no room in the round that is planned."""

    def line(self, ready: Iterable[Sequence]) -> PromptQueue:
        """Return the prompts of the next round: of those that are ready, and of those that wait."""
        return self._line(self._ordered(ready))

    def wanted(self, plan: RoundPlan) -> int:
        """Return how many tokens prompts could have read in a round, up to all of it."""
        wanted, most = 0, plan.tokens_max
        for sequence in self._readers():
            if sequence.held_back:
                continue
            if sequence.pending > 1 and plan.may_read(sequence):
                wanted += sequence.unread
                if wanted >= most:
                    return most
        return wanted

    def plan(self, plan: RoundPlan, ready: Iterable[Sequence]) -> None:
        """Read prompts by their shares, and admit waiting sequences as they have some.

        What one cannot use is shared among the others.
        """
        reading = {sequence.sequence_id: sequence for sequence in ready}
        tried = set[int]()
        while plan.tokens_left > 0:
            ordered = self._ordered(reading.values())
            ordered = [sequence for sequence in ordered if sequence.sequence_id not in tried]
            if not ordered:
                break
            line, used = self._line(ordered), dict[int, int]()
            shares = line.shares(plan.tokens_left)
            for index in sorted(shares):
                sequence, left = ordered[index], plan.tokens_left
                if not left:
                    break
                tried.add(sequence.sequence_id)
                if sequence.sequence_id not in reading:
                    self._admit(plan, sequence, shares[index])
                elif sequence.sequence_id in self.running_set.running:
                    plan.add(sequence, shares[index])  # no earlier row has preempted it
                used[index] = left - plan.tokens_left
            if self.credit is not None:
                cost, overtaking = line.cost(used), line.overtaking(shares, used)
                self.credit = next_credit(self.credit, cost, overtaking, plan.tokens_max)
        self._blocked = None

    def _admit(self, plan: RoundPlan, sequence: Sequence, count: int) -> None:
        """Admit a waiting sequence, and add its first row; few overtake it if it finds no room."""
        is_full, first = len(self.running_set.running) >= self.rows_max, self._blocked
        if is_full or self._is_held(sequence):
            return
        if first is not None and not self.overtaking.allows(sequence, first):
            return
        if not self.running_set.admit(sequence):
            self._blocked = first or sequence
            return
        if first is not None:
            self.overtaking.count(sequence, first)
        self.running_set.waiting.remove(sequence)
        if not sequence.held_back:
            plan.add(sequence, count)

    def _ordered(self, ready: Iterable[Sequence]) -> list[Sequence]:
        """Return those that may be read, in the order of the queue."""
        running = self.running_set.running
        reading = [sequence for sequence in ready if sequence.sequence_id in running]
        return [*merge(sorted(reading, key=queue_key), self._entering(), key=queue_key)]

    def _line(self, ordered: Iterable[Sequence]) -> PromptQueue:
        """Return their prompts; one that others wait for is read as early as the shortest of
        them."""
        ranks: dict[int, int] = {}
        for sequence in self.running_set.waiting:
            if (awaited := sequence.turn.awaited) is not None:
                reader, left = awaited.reader.sequence_id, unread_prompt(sequence).unread
                ranks[reader] = min(ranks.get(reader, left), left)
        prompts = [unread_prompt(one, ranks.get(one.sequence_id, 0)) for one in ordered]
        if self.credit is not None and len(prompts) > 1:
            weights = {n: self.weight(n) for n in dict.fromkeys(one.start for one in prompts)}
            prompts = [one._replace(weight=weights[one.start]) for one in prompts]
        return PromptQueue(prompts, self.running_set.now_s, self.credit)

    def _readers(self) -> Iterator[Sequence]:
        """Yield all that run, then those that may enter: these are found only if they are asked
        for."""
        yield from self.running_set.running.values()
        yield from self._entering()

    def _entering(self) -> list[Sequence]:
        """Return those that wait and may enter a round, in their order: for each row that is free
        the first of the queue, and as many that go first out of its order."""
        free = self.rows_max - len(self.running_set.running)
        if free <= 0:
            return []
        first = self._blocked
        waiting = [
            sequence
            for sequence in self.running_set.waiting
            if (sequence.turn.awaited is None or not self._is_held(sequence))
            and (first is None or self.overtaking.allows(sequence, first))
        ]
        if len(waiting) <= 2 * free or self.credit is None:
            return waiting[: 2 * free]
        now_s = self.running_set.now_s
        others = nsmallest(free, waiting[free:], key=lambda one: rank(unread_prompt(one), now_s))
        return [*waiting[:free], *sorted(others, key=queue_key)]

    def _is_held(self, sequence: Sequence) -> bool:
        """Return whether a sequence waits for something else than room: the choice that reads its
        prompt, or a prompt that begins like it."""
        if awaits_leader(sequence):
            return True
        was_held = sequence.turn.awaited is not None
        if awaits_prefix(sequence, self.running_set.running.values()):
            return True
        if was_held:
            sequence.turn.found = known_slots(sequence)
        return False
