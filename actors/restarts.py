"""Restart intensity, as in Erlang's supervisors: so many failures in so much time, then give up."""

from collections import deque
from dataclasses import dataclass, field


@dataclass(slots=True)
class RestartLimit:
    """Allows `failures_max` failures within any `window_s` seconds."""

    failures_max: int = 20
    window_s: float = 60.0
    pause_s: float = 0.05
    """Before a restart: a device that fails at once must not spin."""
    _failures: deque[float] = field(default_factory=deque[float])

    def allows(self, now: float) -> bool:
        """Count a failure at `now` seconds; returns whether to start again."""
        self._failures.append(now)
        while self._failures[0] <= now - self.window_s:
            self._failures.popleft()
        return len(self._failures) <= self.failures_max
