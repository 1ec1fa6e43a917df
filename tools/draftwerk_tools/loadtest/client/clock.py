"""The clock of a run: monotonic seconds from its start."""

import time
from collections.abc import Callable

Clock = Callable[[], float]


def clock_from_now() -> Clock:
    """Return a clock that counts seconds from now."""
    start_s = time.perf_counter()
    return lambda: time.perf_counter() - start_s
