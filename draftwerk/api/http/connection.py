"""Detecting that a request's client has disconnected."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from starlette.types import Receive

from draftwerk.api.shared.errors import ClientGoneError


@asynccontextmanager
async def while_connected(receive: Receive) -> AsyncGenerator[Callable[[], bool], None]:
    """Cancel the block when the client goes, and raise ClientGoneError from it.

    The cancellation arrives once, so that what the block owns can be given back with awaits. Call
    what is yielded before the last send: after that, a disconnect is only the end.
    """
    task = asyncio.current_task()
    assert task is not None
    gone = False

    async def watch() -> None:
        nonlocal gone
        while (await receive())["type"] != "http.disconnect":
            pass
        gone = True
        task.cancel()

    watcher = asyncio.create_task(watch())
    try:
        yield watcher.cancel
    except asyncio.CancelledError:
        if gone and not task.uncancel():
            raise ClientGoneError from None
        raise
    finally:
        watcher.cancel()
