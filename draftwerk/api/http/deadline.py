"""A limit on waits that come by the thousand, with one timer for all of them."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(slots=True)
class Deadline:
    """Calls `late` once a wait has lasted `seconds`.

    `asyncio.timeout` arms a timer for each wait. Here a wait only notes when it begins and ends,
    and the timer, when it goes off, goes by what was noted.
    """

    seconds: float
    late: Callable[[], object]
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    _begun: float | None = None
    _timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Note that a wait begins."""
        self._begun = self._loop.time()
        if self._timer is None:
            self._timer = self._loop.call_at(self._begun + self.seconds, self._look)

    def end(self) -> None:
        """Note that the wait is over."""
        self._begun = None

    def close(self) -> None:
        """Stop the timer; no wait follows."""
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        self._timer = None
        if self._begun is None:
            return
        due = self._begun + self.seconds
        if self._loop.time() >= due:
            self.late()
        else:
            self._timer = self._loop.call_at(due, self._look)
