"""How fast requests end, from which a refused client's retry time is computed."""

from collections import deque
from dataclasses import dataclass, field

WINDOW = 64
"""Endings remembered: enough to be steady, few enough to follow the load."""
RETRY_MS_MIN, RETRY_MS_MAX = 100, 30_000


@dataclass(slots=True)
class DrainRate:
    """The times at which the latest requests ended, in seconds of any clock."""

    _endings: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))

    def record(self, now: float) -> None:
        self._endings.append(now)

    def retry_after_ms(self, now: float) -> int:
        """Return the mean time between endings; a second while nothing is known."""
        if len(self._endings) < 2:
            return 1000
        each_ms = 1000 * (now - self._endings[0]) / len(self._endings)
        return round(min(max(each_ms, RETRY_MS_MIN), RETRY_MS_MAX))
