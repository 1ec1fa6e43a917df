"""Which of the texts in a line are left out, so that most of the others are in time.

    for each text in the order of the line:
        it joins; if it is late then, the longest so far is left out, or it itself

That is the rule of Moore and Hodgson (Management Science 15, 1968). With one row for each text and
a line in which what is due first stands first, no other choice has more texts in time.
"""

from collections.abc import Iterable, Sequence
from heapq import heapify, heapreplace
from typing import NamedTuple


class QueuedRequest(NamedTuple):
    """A text that waits for its prompt to be read; seconds from now."""

    read_s: float
    """The time that reading takes."""
    due_s: float
    """When its first token is due; infinite if nothing was promised, and it is never left out."""
    row_s: float = 0.0
    """How long it keeps its row after that."""
    priority: int = 0
    """Larger is less urgent; none is left out for a less urgent one."""


class PrefillTimes:
    """When each text of a line has its first token, one behind the other."""

    def __init__(self, ahead_s: float, rows_s: Sequence[float]) -> None:
        """`rows_s` are when each row is free; without any there is one for each text."""
        self._ahead_s = ahead_s
        self._rows_s = [*rows_s]
        heapify(self._rows_s)

    def first_s(self, one: QueuedRequest) -> float:
        """Return when a text that comes next would have its first token."""
        return max(self._rows_s[0] if self._rows_s else 0.0, self._ahead_s) + one.read_s

    def add(self, one: QueuedRequest) -> None:
        """Take in the next text."""
        if self._rows_s:
            heapreplace(self._rows_s, self.first_s(one) + one.row_s)
        self._ahead_s += one.read_s


def left_out(
    line: Sequence[QueuedRequest], ahead_s: float = 0.0, rows_s: Sequence[float] = ()
) -> dict[int, float]:
    """Return the places in the line that are left out, and how late a text would be with them.

    `ahead_s` is what must be read before the line.
    """

    def times(places: Iterable[int]) -> PrefillTimes:
        found = PrefillTimes(ahead_s, rows_s)
        for place in places:
            found.add(line[place])
        return found

    kept: list[int] = []
    out: dict[int, float] = {}
    now = times(kept)
    for place, one in enumerate(line):
        late_s = now.first_s(one) - one.due_s
        if late_s > 0.0:
            longest = _longest(line, kept, one)
            others = [each for each in kept if each != longest]
            without = times(others)
            if longest is None or without.first_s(one) > one.due_s:
                out[place] = late_s
                continue
            out[longest] = late_s
            kept, now = others, without
        kept.append(place)
        now.add(one)
    return out


def _longest(line: Sequence[QueuedRequest], kept: Iterable[int], late: QueuedRequest) -> int | None:
    """Return the place that is read longest of those that may be left out for a late text."""
    longer = (
        place
        for place in kept
        if line[place].read_s > late.read_s
        and line[place].due_s < float("inf")
        and line[place].priority >= late.priority
    )
    return max(longer, key=lambda place: line[place].read_s, default=None)
