"""Many items, few at once, results in order."""

import asyncio

import pytest

from draftwerk.python_api.batches import in_order


async def test_results_are_in_the_order_of_the_items_and_few_run_at_once() -> None:
    running, most = 0, 0

    async def work(item: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.001 * (item % 3))
        running -= 1
        return item * item

    assert await in_order(range(50), work, 4) == [item * item for item in range(50)]
    assert most == 4


async def test_the_first_failure_cancels_the_others_and_begins_no_more() -> None:
    begun: list[int] = []
    cancelled: list[int] = []

    async def work(item: int) -> None:
        begun.append(item)
        try:
            await asyncio.sleep(0.01 if item == 1 else 60)
        except asyncio.CancelledError:
            cancelled.append(item)
            raise
        raise LookupError(item)

    with pytest.raises(LookupError, match="1"):
        await in_order(range(50), work, 3)
    assert begun == [0, 1, 2]
    assert sorted(cancelled) == [0, 2]
