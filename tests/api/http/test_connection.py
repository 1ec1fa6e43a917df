"""A client that goes cancels what is done for it, and nothing else does."""

import asyncio

import pytest

from draftwerk.api.http.connection import while_connected


async def test_behind_the_last_send_a_disconnect_is_only_the_end() -> None:
    gone = asyncio.Event()

    async def receive() -> dict[str, str]:
        await gone.wait()
        return {"type": "http.disconnect"}

    async with while_connected(receive) as last_send:
        last_send()
        gone.set()
        await asyncio.sleep(0)
        await asyncio.sleep(0)


async def test_another_cancellation_stays_one() -> None:
    async def receive() -> dict[str, str]:
        await asyncio.Event().wait()
        return {}

    async def block() -> None:
        async with while_connected(receive):
            await asyncio.Event().wait()

    task = asyncio.create_task(block())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
