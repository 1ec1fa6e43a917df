"""Keeping to the plan: an open loop that never waits for answers, a closed loop of users."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from random import Random

from draftwerk_tools.loadtest.client.clock import Clock
from draftwerk_tools.loadtest.schedule.plan import Planned

# Runs one whole session, given the time its first request was due.
RunSession = Callable[[Planned, float], Awaitable[None]]


async def sleep_until(at_s: float, clock: Clock) -> None:
    """Sleep on the loop's timer, which is late by up to a millisecond; lateness is reported."""
    wait_s = at_s - clock()
    if wait_s > 0:
        await asyncio.sleep(wait_s)


async def open_loop(
    sessions: Iterable[Planned], run: RunSession, clock: Clock, in_flight_max: int | None
) -> None:
    """Start each session at its time, whatever became of the ones before it.

    With `in_flight_max` a session may have to wait for a place; that wait is lateness, and counts.
    """
    places = asyncio.Semaphore(in_flight_max) if in_flight_max else None
    async with asyncio.TaskGroup() as group:
        for planned in sessions:
            at_s = planned.at_s or 0.0
            await sleep_until(at_s, clock)
            group.create_task(_placed(planned, at_s, run, places))


async def _placed(
    planned: Planned, at_s: float, run: RunSession, places: asyncio.Semaphore | None
) -> None:
    if places is None:
        await run(planned, at_s)
        return
    async with places:
        await run(planned, at_s)


async def closed_loop(
    sessions: Iterator[Planned],
    run: RunSession,
    clock: Clock,
    users: int,
    *,
    until_s: float | None = None,
    ramp_s: float = 0.0,
    pause: Callable[[Planned], float] = lambda planned: 0.0,
) -> None:
    """Let each user take the next session as soon as the last has ended and the pause is over."""

    async def user(number: int) -> None:
        due_s = ramp_s * number / users
        await sleep_until(due_s, clock)
        while until_s is None or clock() < until_s:
            planned = next(sessions, None)
            if planned is None:
                return
            await run(planned, max(due_s, 0.0))
            due_s = clock() + pause(planned)
            await sleep_until(due_s, clock)

    async with asyncio.TaskGroup() as group:
        for number in range(users):
            group.create_task(user(number))


def think_time(mean_s: float, seed: int, *place: int) -> float:
    """Draw an exponential pause that belongs to this place in the plan."""
    if mean_s == 0:
        return 0.0
    return Random(f"{seed}/think/{place}").expovariate(1 / mean_s)
