"""Many requests at once, as many as the engine has places for."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


async def in_order(items: Sequence[T], work: Callable[[T], Awaitable[R]], at_once: int) -> list[R]:
    """Return the results of `work`, in the order of the items, at most `at_once` under way.

    The first failure cancels the rest and is raised.
    """
    results: dict[int, R] = {}
    left = iter(enumerate(items))

    async def worker() -> None:
        for index, item in left:
            results[index] = await work(item)

    workers = [asyncio.create_task(worker()) for _ in range(min(at_once, len(items)))]
    try:
        if workers:
            await asyncio.wait(workers, return_when=asyncio.FIRST_EXCEPTION)
            for each in workers:
                if each.done():
                    each.result()
    finally:
        for each in workers:
            each.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
    return [results[index] for index in range(len(items))]
