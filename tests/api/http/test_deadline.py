"""One timer for many waits: late only once a single wait has lasted."""

import asyncio

from draftwerk.api.http.deadline import Deadline


async def test_waits_that_end_in_time_are_never_late() -> None:
    late = list[str]()
    deadline = Deadline(0.05, lambda: late.append("late"))
    for _ in range(8):
        deadline.begin()
        await asyncio.sleep(0.01)
        deadline.end()
    deadline.close()
    assert late == []


async def test_a_wait_that_lasts_is_late_once() -> None:
    late = asyncio.Event()
    deadline = Deadline(0.01, late.set)
    deadline.begin()
    async with asyncio.timeout(10):
        await late.wait()
    deadline.close()
