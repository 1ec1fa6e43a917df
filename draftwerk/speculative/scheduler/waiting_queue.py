"""The sequences that wait for blocks, in one order that also rules preemption and the return.

    queue key = priority * AGING_ROUNDS + (the round in which it was submitted)

The least key goes first and is preempted last. A policy may add up to so many rounds, and raise a
key once, before the sequence has a token; later sequences have larger ones. So every sequence is
the least in the end: none starves, and none is preempted for one that it will be preempted by.
"""

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Iterator

from draftwerk.speculative.requests.sequence import Sequence, awaits_leader

AGING_ROUNDS = 256
"""Rounds for which a sequence goes before those of the next less urgent priority."""


class WaitingQueue:
    """Waiting sequences in the order of their queue keys."""

    def __init__(self) -> None:
        self._sequences: deque[Sequence] = deque()

    def __len__(self) -> int:
        return len(self._sequences)

    def __iter__(self) -> Iterator[Sequence]:
        return iter(self._sequences)

    @property
    def first(self) -> Sequence | None:
        return self._sequences[0] if self._sequences else None

    @property
    def first_ready(self) -> Sequence | None:
        """The first that waits for no other choice of its request."""
        return next((one for one in self._sequences if not awaits_leader(one)), None)

    def insert(self, sequence: Sequence) -> None:
        """Queue a sequence behind those of its key."""
        index = bisect_right(self._sequences, sequence.queue_key, key=queue_key)
        self._sequences.insert(index, sequence)

    def requeue(self, sequences: Iterable[Sequence]) -> None:
        """Return sequences, in their order, to the places that they had."""
        for sequence in reversed([*sequences]):
            index = bisect_left(self._sequences, sequence.queue_key, key=queue_key)
            self._sequences.insert(index, sequence)

    def remove(self, sequence: Sequence) -> None:
        """Take a sequence out, wherever it is."""
        self._sequences.remove(sequence)

    def check(self) -> None:
        """Assert the order."""
        keys = [sequence.queue_key for sequence in self._sequences]
        assert keys == sorted(keys), "the queue is out of order"


def queue_key(sequence: Sequence) -> int:
    return sequence.queue_key
