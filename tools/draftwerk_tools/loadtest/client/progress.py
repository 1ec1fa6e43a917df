"""One line on stderr with the run's progress."""

import asyncio
import sys
from dataclasses import dataclass, field
from typing import TextIO

from draftwerk_tools.loadtest.client.clock import Clock
from draftwerk_tools.loadtest.measure.rows import RequestRow

WIDTH = 24


@dataclass(slots=True)
class Progress:
    """Counts rows as they come and draws a bar about four times a second."""

    clock: Clock
    label: str
    total: int | None
    duration_s: float | None
    stream: TextIO = field(default_factory=lambda: sys.stderr)
    in_flight: int = 0
    ended: int = 0
    ok: int = 0
    tokens: int = 0

    def note(self, change: int) -> None:
        self.in_flight += change

    def count(self, row: RequestRow) -> None:
        self.ended += 1
        self.ok += row.ok
        self.tokens += row.output_tokens or 0

    async def run(self) -> None:
        while True:
            self._draw()
            await asyncio.sleep(0.25)

    def close(self) -> None:
        """Leave the final line behind, on a terminal or in a log."""
        erase = "\r\033[K" if self.stream.isatty() else ""
        self.stream.write(f"{erase}{self.line()}\n")

    def line(self) -> str:
        elapsed_s = self.clock()
        filled = round(WIDTH * self._done(elapsed_s))
        bar = "█" * filled + "░" * (WIDTH - filled)
        rate = self.tokens / elapsed_s if elapsed_s > 0 else 0.0
        failed = self.ended - self.ok
        total = "" if self.total is None else f"/{self.total}"
        return (
            f"{self.label} {bar} {elapsed_s:5.1f} s  {self.ended}{total} done  "
            f"{self.in_flight} in flight  {failed} not ok  {rate:.0f} tok/s"
        ).strip()

    def _done(self, elapsed_s: float) -> float:
        by_count = self.ended / self.total if self.total else 0.0
        by_time = elapsed_s / self.duration_s if self.duration_s else 0.0
        return max(0.0, min(1.0, max(by_count, by_time)))

    def _draw(self) -> None:
        if self.stream.isatty():
            self.stream.write(f"\r\033[K{self.line()}")
            self.stream.flush()
