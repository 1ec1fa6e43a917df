"""Reading a request's body, and detecting that its client has disconnected."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from starlette.types import Message, Receive, Scope

from draftwerk.api.core.errors import ApiError, refused


class ClientGoneError(Exception):
    """The client closed the connection."""


class SlowClientError(ClientGoneError):
    """The client has the connection open, and reads nothing."""


async def read_body(scope: Scope, receive: Receive, size_max: int, deadline_s: float) -> bytes:
    """Return the request's body; 413 if it is too big, 408 if it takes too long, 400 if packed."""
    headers = dict(scope["headers"])
    size = headers.get(b"content-length", b"")
    if size.isdigit() and int(size) > size_max:
        raise _too_large(size_max)
    if headers.get(b"content-encoding", b"identity").lower() != b"identity":
        raise refused("The body must not be compressed.", "content-encoding", "unsupported")
    try:
        async with asyncio.timeout(deadline_s):
            return await _collected(receive, size_max)
    except TimeoutError:
        raise ApiError(408, "The body took too long to arrive.", code="body_timeout") from None


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


async def _collected(receive: Receive, size_max: int) -> bytes:
    body = bytearray()
    more = True
    while more:
        message: Message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGoneError
        body += message.get("body", b"")
        more = message.get("more_body", False)
        if len(body) > size_max:
            raise _too_large(size_max)
    return bytes(body)


def _too_large(size_max: int) -> ApiError:
    return ApiError(413, f"The body is over {size_max} bytes.", code="body_too_large")
