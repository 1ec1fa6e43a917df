"""An event loop in a thread of its own, for callers that have none."""

import asyncio
from collections.abc import Coroutine
from concurrent.futures import CancelledError, Future
from threading import Lock, Thread, current_thread
from typing import Any, TypeVar

import uvloop

from draftwerk.python_api.errors import ClosedError

T = TypeVar("T")


class LoopThread:
    """Runs coroutines for other threads."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        self._loop = self._runner.get_loop()
        self._last: asyncio.Future[Coroutine[Any, Any, None]] = self._loop.create_future()
        self._closed = False
        self._order = Lock()
        """Whatever was begun before `close` reaches the loop before the end does."""
        # A daemon: a program that ends without closing it must not wait for it.
        self._thread = Thread(target=self._run, name="draftwerk engine", daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine and return its result; an interrupt of the caller cancels it."""
        future = self.start(coroutine)
        try:
            return future.result()
        except CancelledError:
            raise ClosedError("The LLM is closed.") from None
        except BaseException:
            future.cancel()
            raise

    def start(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Begin to run a coroutine, without waiting for it. Raises ClosedError."""
        is_here = self._thread.is_alive()  # a fork has none but the thread that forked
        with self._order:
            if not self._closed and is_here:
                return asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        coroutine.close()
        raise ClosedError(
            "The LLM is closed." if self._closed else "The LLM runs in the process that made it."
        )

    def close(self, last: Coroutine[Any, Any, None]) -> None:
        """Run a last coroutine, then cancel whatever is left and end the thread."""
        with self._order:
            was_closed, self._closed = self._closed, True
            if not was_closed:
                self._loop.call_soon_threadsafe(self._last.set_result, last)
        if was_closed:
            last.close()
        if current_thread() is not self._thread:  # as when the collector finds its owner there
            self._thread.join()

    def _run(self) -> None:
        with self._runner:
            self._runner.run(self._until_closed())

    async def _until_closed(self) -> None:
        await (await self._last)
