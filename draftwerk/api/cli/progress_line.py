"""Lines of progress in a terminal: one that changes in place, or few in a file."""

import os
import sys
from collections.abc import Callable
from time import monotonic
from typing import TextIO

OVER_LAST = "\x1b[1A\x1b[2K"
"""The characters that move a terminal's cursor to the line above, and empties it."""
QUIET_S = 10.0
"""Between two lines on the same subject, where they cannot be written over."""


def printed(text: str, stream: TextIO) -> None:
    """Print at once; where it cannot be written, as behind `| head` or on a full disk, this and
    all that follows is dropped.
    """
    try:
        stream.write(text)
        stream.flush()
    except OSError:
        drop_output(stream)


def drop_output(stream: TextIO) -> None:
    """Send nowhere what is written from now on, what is buffered too."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


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
            printed(f"{over}  {line}\n", stream)
            self._printed = self._clock()
