"""A thread that nobody waits for: what is cancelled is left behind, and ends with the process."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from threading import Thread
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


async def run_in_daemon_thread(work: Callable[P, R], *args: P.args, **how: P.kwargs) -> R:
    """Do long work off the event loop; a cancel does not wait for it, nor does the process."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[R] = loop.create_future()

    def deliver(end: Callable[[], None]) -> None:
        def unless_cancelled() -> None:
            if not future.done():
                end()

        with suppress(RuntimeError):  # the loop is closed: nobody waits
            loop.call_soon_threadsafe(unless_cancelled)

    def run() -> None:
        try:
            result = work(*args, **how)
        except BaseException as error:
            failure = error
            deliver(lambda: future.set_exception(failure))
        else:
            deliver(lambda: future.set_result(result))

    Thread(target=run, daemon=True).start()
    return await future
