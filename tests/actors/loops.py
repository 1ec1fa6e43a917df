"""Runs an asynchronous test on both event loops."""

from collections.abc import Awaitable, Callable

import anyio
import pytest
import trio
import trio.testing

from tests.support.waiting import DEADLINE_S


def on_both_loops(test: Callable[[], Awaitable[None]]) -> Callable[[str], None]:
    """Make an async function a test on asyncio and on trio, with a deadline."""

    async def within_the_deadline() -> None:
        with anyio.fail_after(DEADLINE_S):
            await test()

    @pytest.mark.parametrize("backend", ["asyncio", "trio"])
    def on_one_loop(backend: str) -> None:
        anyio.run(within_the_deadline, backend=backend)

    on_one_loop.__name__ = test.__name__
    on_one_loop.__doc__ = test.__doc__
    return on_one_loop


def on_virtual_time(test: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    """Make an async function a test whose clock jumps to the next deadline; it uses no thread."""

    def on_one_loop() -> None:
        clock = trio.testing.MockClock(autojump_threshold=0)
        anyio.run(test, backend="trio", backend_options={"clock": clock})

    on_one_loop.__name__ = test.__name__
    on_one_loop.__doc__ = test.__doc__
    return on_one_loop


async def settle() -> None:
    """Let every other task do what it can."""
    if trio.lowlevel.in_trio_task():  # it runs its tasks in any order
        await trio.testing.wait_all_tasks_blocked()
        return
    for _ in range(30):
        await anyio.lowlevel.checkpoint()
