"""Which CPU a thread runs on, where the system tells.

Linux may leave a thread that another one wakes on that one's CPU though others are idle, if these
were busy until now; and the less nice of the two goes first.
"""

import ctypes
import os
from collections.abc import Callable
from contextlib import suppress

UNKNOWN = -1


def _asking() -> Callable[[], int]:
    if not hasattr(os, "sched_setaffinity"):
        return lambda: UNKNOWN
    return getattr(ctypes.CDLL(None), "sched_getcpu", lambda: UNKNOWN)


current_cpu = _asking()
"""Returns the number of the CPU that the calling thread runs on, or `UNKNOWN`."""


def step_aside(cpu: int) -> None:
    """Move the calling thread to another CPU if it runs on this one; later it may run on any."""
    if cpu == UNKNOWN or current_cpu() != cpu:
        return
    allowed = os.sched_getaffinity(0)
    if others := allowed - {cpu}:
        with suppress(OSError):  # where a sandbox forbids it
            os.sched_setaffinity(0, others)
            os.sched_setaffinity(0, allowed)
