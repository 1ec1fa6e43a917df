"""The deltas of one request, for a reader on the engine's own event loop."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Self

from draftwerk.python_api.outputs import OutputDelta, RequestOutput

Take = Callable[[OutputDelta], None]
RequestRun = Callable[[Take], Coroutine[Any, Any, RequestOutput]]


@dataclass(slots=True)
class Feed:
    """The feed that the request's task and the reader share: the task must not keep the stream
    alive."""

    deltas: deque[OutputDelta] = field(default_factory=deque[OutputDelta])
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def take(self, delta: OutputDelta) -> None:
        """Keep a delta for the reader; the request's token limit bounds how many there are."""
        self.deltas.append(delta)
        self.changed.set()

    def end(self, task: asyncio.Task[RequestOutput]) -> None:
        """Wake the reader at the task's end, and mark its error as seen: the reader may be gone."""
        if not task.cancelled():
            task.exception()
        self.changed.set()


class AsyncOutputStream(AsyncIterator[OutputDelta]):
    """Begins its request when it is first read; leaving its block or dropping it cancels that."""

    def __init__(self, run: RequestRun) -> None:
        self._run = run
        self._feed = Feed()
        self._task: asyncio.Task[RequestOutput] | None = None
        self._closed = False

    async def __anext__(self) -> OutputDelta:
        feed = self._feed
        if self._task is None and not self._closed:
            self._task = asyncio.create_task(self._run(feed.take))
            self._task.add_done_callback(feed.end)
        while not feed.deltas:
            if self._closed or self._task is None:
                raise StopAsyncIteration
            if self._task.done():
                self._task.result()
                raise StopAsyncIteration
            feed.changed.clear()
            await feed.changed.wait()
        return feed.deltas.popleft()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    def __del__(self) -> None:
        if self._task is not None and not self._task.done():
            with suppress(RuntimeError):  # the loop has ended, and the request with it
                self._task.get_loop().call_soon_threadsafe(self._task.cancel)

    async def aclose(self) -> None:
        """Cancel what is left of the request, and end the stream."""
        self._closed = True
        self._feed.deltas.clear()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    @property
    def output(self) -> RequestOutput | None:
        """The whole output, once the request has ended by itself."""
        task = self._task
        if task is None or not task.done() or task.cancelled() or task.exception() is not None:
            return None
        return task.result()
