"""Who may start before the first that waits, where that one finds no room.

A sequence passes if it fits into the blocks that are free, and has probably ended before those come
free that the first one waits for. Whatever becomes of it, the first one starts no later: as soon as
it has room without those that passed, they are preempted.

    rounds to read + tokens left <= rounds until enough of the running ones have ended

One that waits is passed by `PASSED_MAX` others, and a sequence passes `PASSES_MAX` times.
"""

from collections.abc import Callable, Iterable
from itertools import accumulate
from math import inf
from typing import NamedTuple

from draftwerk.speculative.options.extended_sequence import in_line
from draftwerk.speculative.options.service.lengths import TextLengths, held_blocks, overflows
from draftwerk.speculative.running_set import RunningSet
from draftwerk.speculative.sequence import Sequence

PASSED_MAX = 64
PASSES_MAX = 2


class EndingText(NamedTuple):
    """A running text."""

    left: int
    """Rounds until it has probably ended."""
    blocks: int
    """The blocks that it gives back then."""


def rounds_until_free(need: int, available: int, running: Iterable[EndingText]) -> float:
    """Return after how many rounds so many blocks are probably available; infinite if never."""
    if need <= available:
        return 0
    ordered = sorted(running)
    totals = accumulate((text.blocks for text in ordered), initial=available)
    free = zip([0, *(text.left for text in ordered)], totals, strict=True)
    return next((left for left, total in free if total >= need), inf)


class Overtaking:
    """Decides who passes the first that waits, and when those give way."""

    def __init__(
        self, running_set: RunningSet, tokens_max: int, lengths: Callable[[], TextLengths | None]
    ) -> None:
        """`tokens_max` are those of a round."""
        self._lengths = lengths
        self._running_set = running_set
        self._tokens_max = tokens_max

    def allows(self, sequence: Sequence, first: Sequence) -> bool:
        """Return whether a sequence may start before the first one, which finds no room."""
        if sequence.turn.passes >= PASSES_MAX or first.turn.passed >= PASSED_MAX:
            return False
        if sequence is first or not in_line(sequence) or sequence.row_count != 1:
            return False
        pool, left = self._running_set.pool, self._left(sequence)
        if pool.blocks_for(len(sequence.tokens) + left) > pool.available:
            return False
        return -(-sequence.unread // self._tokens_max) + left <= self._rounds(first)

    def count(self, sequence: Sequence, first: Sequence) -> None:
        """Take in that a sequence has passed."""
        sequence.turn.passing = True
        sequence.turn.passes += 1
        first.turn.passed += 1

    def is_due(self) -> bool:
        """Return whether the first one has room without those that passed it."""
        first = self._running_set.waiting.first_ready
        return first is not None and self._has_room(first, self._passed(first))

    def _has_room(self, first: Sequence, passed: list[Sequence]) -> bool:
        if not passed:
            return False
        running, pool = self._running_set.running, self._running_set.pool
        held = sum(map(held_blocks, passed))
        others = [one for one in running.values() if one not in passed]
        if pool.available + held < first.entry_blocks(pool) + self._growth(others):
            return False
        lengths = self._lengths()
        return lengths is None or not others or not overflows(pool, lengths, others, first, held)

    def give_way(self) -> None:
        """Preempt those that passed the first one, as far as it needs, if it has room then."""
        first, pool = self._running_set.waiting.first_ready, self._running_set.pool
        if first is None:
            return
        passed = [sequence for sequence in self._passed(first) if not sequence.in_flight]
        if not self._has_room(first, passed):
            return
        while passed:
            others = [one for one in self._running_set.running.values() if one is not first]
            if pool.available >= first.entry_blocks(pool) + self._growth(others):
                return
            self._running_set.preempt(passed.pop())

    def _growth(self, running: Iterable[Sequence]) -> int:
        """Return how many blocks texts take with their next tokens, before others enter."""
        pool = self._running_set.pool
        return sum(
            max(0, pool.blocks_for(len(one.tokens) + 1) - one.memory.block_count) for one in running
        )

    def _passed(self, first: Sequence) -> list[Sequence]:
        """Return those that run before the first one, though they come after it."""
        return [
            sequence
            for sequence in self._running_set.running.values()
            if sequence.turn.passing and sequence.queue_key > first.queue_key
        ]

    def _rounds(self, first: Sequence) -> float:
        passed, pool = self._passed(first), self._running_set.pool
        running = [
            EndingText(self._left(sequence), held_blocks(sequence))
            for sequence in self._running_set.running.values()
            if sequence not in passed
        ]
        available = pool.available + sum(map(held_blocks, passed))
        return rounds_until_free(first.entry_blocks(pool), available, running)

    def _left(self, sequence: Sequence) -> int:
        """Return how many tokens a sequence probably generates still."""
        lengths = self._lengths()
        if lengths is not None:
            return lengths.left(sequence)
        return sequence.request.tokens_max - sequence.generated
