"""Work that a cancel leaves behind."""

import asyncio
import threading

import pytest

from draftwerk.machine.daemon_thread import run_in_daemon_thread


@pytest.mark.asyncio
async def test_its_result_and_its_error_come_back() -> None:
    assert await run_in_daemon_thread(divmod, 7, 2) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        await run_in_daemon_thread(divmod, 1, 0)


@pytest.mark.asyncio
async def test_a_cancel_does_not_wait_for_it() -> None:
    begun, may_end = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        may_end.wait()

    task = asyncio.create_task(run_in_daemon_thread(work))
    while not begun.is_set():  # noqa: ASYNC110 - an event of threads
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not may_end.is_set()
    may_end.set()
