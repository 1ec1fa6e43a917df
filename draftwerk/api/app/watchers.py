"""A server's periodic work: memory, places, the event loop's lag, the collector."""

import asyncio
import gc
import os
from collections.abc import Callable

from draftwerk.api.shared.state import ServerState
from draftwerk.machine.host import proportional_bytes, return_freed_memory

COLLECTOR = (400, 2, 500)
"""When Python's garbage collector looks at the young, the middle and all; see the function."""
LAG_PERIOD_S = 0.1
MEMORY_PERIOD_S = 1.0
MEMORY_SHARE = 0.005
"""The share of the time: the kernel looks at every page, for 50 ms where a gigabyte is held."""
TRIM_PERIOD_S = 10.0
PLACES_PERIOD_S = 0.5


def bound_collections() -> None:
    """Keep what was loaded from Python's garbage collector, and let it look at little at a time.

    The loop waits while it looks, half a microsecond for each object: 400 of them, at every third
    time 1200. Under Python's own thresholds the third time is the eleventh and sees 7700 objects,
    which took up to 7 ms. Looking at every live object takes 3 to 11 ms and finds a few
    objects, so it comes every 600 000 objects: minutes apart under full load.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECTOR)


async def watch_lag(state: ServerState) -> None:
    """Measure how late the event loop wakes a sleeper."""
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + LAG_PERIOD_S
        await asyncio.sleep(LAG_PERIOD_S)
        state.loop_lag_s = loop.time() - due
        state.histograms.loop_lag.observe(state.loop_lag_s)


async def follow_places(state: ServerState, places: Callable[[], int]) -> None:
    """Let in as many requests as there are places."""
    while True:
        if count := places():
            state.admission.resize(count)
        await asyncio.sleep(PLACES_PERIOD_S)


async def watch_memory(state: ServerState) -> None:
    """Measure what the server and its model processes hold."""
    loop = asyncio.get_running_loop()
    while True:
        begun = loop.time()
        state.memory.observe(await asyncio.to_thread(proportional_bytes, os.getpid()))
        taken = loop.time() - begun
        await asyncio.sleep(memory_pause_s(taken, is_limited=state.memory.limit_bytes > 0))


def memory_pause_s(taken_s: float, *, is_limited: bool) -> float:
    """Return the seconds until memory is measured again; seldom where no limit waits for it."""
    return MEMORY_PERIOD_S if is_limited else max(MEMORY_PERIOD_S, taken_s / MEMORY_SHARE)


async def trim_memory() -> None:
    """Return what is free, such as what large bodies took."""
    while True:
        await asyncio.sleep(TRIM_PERIOD_S)
        await asyncio.to_thread(return_freed_memory)
