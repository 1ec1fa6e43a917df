"""A line that says how much of something is done, and when the rest will be."""

from collections import deque
from collections.abc import Callable
from time import monotonic

from draftwerk.speculative.protocol.frames import OnProgress

EVERY_S = 0.25
"""Between two lines."""
WINDOW_S = 5.0
"""The time that the rate looks back on."""


class ByteProgress:
    """Tells of bytes as they are done, a few times a second."""

    def __init__(
        self,
        progress: OnProgress,
        subject: str,
        total: int,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._progress = progress
        self._subject = subject
        self._total = total
        self._clock = clock
        self._seen: deque[tuple[float, int]] = deque()
        """Times, and the bytes done by then."""
        self.done = 0

    def add(self, size: int) -> None:
        """Count bytes that were done just now."""
        self.reach(self.done + size)

    def reach(self, done: int) -> None:
        """Say that so many bytes are done, whether or not it was just now."""
        now, self.done = self._clock(), done
        if self._seen and now - self._seen[-1][0] < EVERY_S and done < self._total:
            return
        self._seen.append((now, done))
        while now - self._seen[0][0] > WINDOW_S and len(self._seen) > 2:
            self._seen.popleft()
        self._progress(f"{self._subject}: {self.text()}")

    def finish(self) -> None:
        """Say that all is done, if it was not said."""
        if self.done < self._total:
            self.reach(self._total)

    def text(self) -> str:
        """Return for example `1.9 of 4.6 GB, 3 s left`."""
        size = f"{number_of(self.done, self._total)} of {size_text(self._total)}"
        left = self._left()
        return size if left is None else f"{size}, {left} left"

    def _left(self) -> str | None:
        (begun, before), (now, done) = self._seen[0], self._seen[-1]
        if now <= begun or done <= before:
            return None
        seconds = (self._total - done) * (now - begun) / (done - before)
        return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def size_text(size: int) -> str:
    """Return a size with its unit."""
    return f"{number_of(size, size)} {'GB' if size >= 1e9 else 'MB'}"


def number_of(size: int, whole: int) -> str:
    """Return a size as a number of the unit that a whole is told in."""
    return f"{size / 1e9:.1f}" if whole >= 1e9 else f"{size / 1e6:.{int(whole < 1e7)}f}"
