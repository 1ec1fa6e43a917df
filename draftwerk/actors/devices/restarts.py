"""Restart intensity, as in Erlang's supervisors: so many failures in so much time, then give up."""

import logging
import random
from collections import deque
from dataclasses import dataclass, field
from typing import cast

from draftwerk.actors.devices.device import DeviceLostError

log = logging.getLogger("draftwerk")


@dataclass(slots=True)
class RestartLimit:
    """Allows `failures_max` failures within `window_s` seconds, and `fruitless_max` in a row.

    A failure is fruitless if nothing was achieved since the one before. Then the pause before the
    next attempt doubles: what fails at once must not spin.
    """

    failures_max: int = 20
    window_s: float = 60.0
    fruitless_max: int = 12
    pause_s: float = 0.05
    pause_max_s: float = 5.0
    rng: random.Random = field(default_factory=random.Random)
    """Jitter: what failed together must not come back together."""
    _failures: deque[float] = field(default_factory=deque[float])
    _fruitless: int = 0

    def pause(self, now: float, *, fruitful: bool = True) -> float | None:
        """Count a failure at `now`; return how long to wait before a restart, None to give up."""
        self._failures.append(now)
        while self._failures[0] <= now - self.window_s:
            self._failures.popleft()
        self._fruitless = 0 if fruitful else self._fruitless + 1
        if len(self._failures) > self.failures_max or self._fruitless > self.fruitless_max:
            return None
        pause_s = min(self.pause_s * 2**self._fruitless, self.pause_max_s)
        return pause_s * self.rng.uniform(0.5, 1.0)


def report(error: Exception) -> None:
    """Log why the actors are started again: a lost device in a line, a bug with its traceback."""
    causes = leaves(error)
    for cause in causes:
        if isinstance(cause, DeviceLostError):
            log.warning("starting the model again: %s", cause)
    if not all(isinstance(cause, DeviceLostError) for cause in causes):
        log.error("starting the actors again", exc_info=error)


def without_bugs(group: BaseExceptionGroup[BaseException]) -> BaseExceptionGroup[BaseException]:
    """Return what ended the actors from outside; an actor that failed just then changes nothing."""
    bugs, rest = group.split(Exception)
    if bugs is not None and rest is not None:
        report(bugs)
        return rest
    return group


def leaves(error: BaseException) -> list[BaseException]:
    """Return what is inside nested groups of exceptions."""
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    group = cast("BaseExceptionGroup[BaseException]", error)
    return [leaf for each in group.exceptions for leaf in leaves(each)]
