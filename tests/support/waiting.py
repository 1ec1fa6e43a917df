"""Waits for conditions, and work without threads: no verdict depends on how fast a machine is."""

import inspect
import time
from collections.abc import Callable
from typing import TypeVar

import anyio

R = TypeVar("R")

DEADLINE_S = 240.0
"""For what never comes; a machine may be busy."""
POLL_S = 0.001


async def until(condition: Callable[[], object], limit_s: float = DEADLINE_S) -> None:
    """Return once the condition is true, on asyncio and on trio; AssertionError past the limit."""
    end_s = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end_s, _never(condition, limit_s)
        await anyio.sleep(POLL_S)


def wait_until(condition: Callable[[], object], limit_s: float = DEADLINE_S) -> None:
    """Return once the condition is true; AssertionError past the limit. The thread waits."""
    end_s = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end_s, _never(condition, limit_s)
        time.sleep(POLL_S)


def _never(condition: Callable[[], object], limit_s: float) -> str:
    """Return what did not come, in the words of the source where there is one."""
    try:
        source = inspect.getsource(condition).strip()
    except (OSError, TypeError):
        source = repr(condition)
    return f"not within {limit_s:g} s: {source}"


class AtOnce:
    """Work done where it is asked for, with no thread."""

    async def run(self, work: Callable[[], R]) -> R:
        return work()
