"""Lines of progress in a terminal: one that changes in place, or few in a file."""

import sys
from collections.abc import Callable
from time import monotonic
from typing import TextIO

OVER_LAST = "\x1b[1A\x1b[2K"
"""What moves a terminal's cursor to the line above, and empties it."""
QUIET_S = 10.0
"""Between two lines on the same subject, where they cannot be written over."""


class ProgressLine:
    """Prints lines such as `loading NAME: 1.9 of 4.6 GB, 3 s left`."""

    def __init__(
        self, stream: TextIO | None = None, clock: Callable[[], float] = monotonic
    ) -> None:
        self._stream = stream
        self._clock = clock
        self._subject = ""
        self._printed = 0.0

    def show(self, line: str) -> None:
        """Print a line; one on the same subject takes the place of the last."""
        stream = self._stream or sys.stdout
        subject = line.partition(": ")[0]
        again, self._subject = subject == self._subject, subject
        if not again or stream.isatty() or self._clock() - self._printed >= QUIET_S:
            over = OVER_LAST if again and stream.isatty() else ""
            stream.write(f"{over}  {line}\n")
            stream.flush()
            self._printed = self._clock()
