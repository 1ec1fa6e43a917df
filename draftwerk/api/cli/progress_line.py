"""Lines of progress in a terminal: one that changes in place, or few in a file."""

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
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


TELL_S = 5.0
"""How long nothing is printed, before the last line is told again."""


class ProgressLine:
    """Prints lines such as `loading NAME: 1.9 of 4.6 GB, 3 s left`."""

    def __init__(
        self, stream: TextIO | None = None, clock: Callable[[], float] = monotonic
    ) -> None:
        self._stream = stream
        self._clock = clock
        self._subject = self._line = ""
        self._printed = self._shown = clock()

    def show(self, line: str) -> None:
        """Print a line; one on the same subject takes the place of the last."""
        stream = self._stream or sys.stdout
        subject = line.partition(": ")[0]
        again, self._subject = subject == self._subject, subject
        self._line, self._shown = line, self._clock()
        if not again or stream.isatty() or self._clock() - self._printed >= QUIET_S:
            over = OVER_LAST if again and stream.isatty() else ""
            printed(f"{over}  {line}\n", stream)
            self._printed = self._clock()

    @asynccontextmanager
    async def told_again(self) -> AsyncGenerator[None]:
        """Tell the last line again while nothing else is printed, and how long it lasts."""
        telling = asyncio.create_task(self._tell())
        try:
            yield
        finally:
            telling.cancel()

    async def _tell(self) -> None:
        while True:  # noqa: ASYNC110 (what passes is time)
            await asyncio.sleep(TELL_S - self.tell_again())

    def tell_again(self) -> float:
        """Print the last line if nothing was for long; returns the seconds since something was."""
        silent, stream = self._clock() - self._printed, self._stream or sys.stdout
        if silent < TELL_S:
            return silent
        lasts = f"{self._clock() - self._shown:.0f} s"
        printed(f"  {self._line or 'starting'} ... {lasts}\n", stream)
        self._printed = self._clock()
        return 0.0
