"""Work on threads: what is slow in one place holds up nothing elsewhere."""

from threading import Event

import anyio
import pytest

from draftwerk.actors.devices.device import ThreadWorker

pytestmark = pytest.mark.anyio


async def test_threads_that_one_worker_holds_are_no_threads_of_another() -> None:
    released, busy, other = Event(), ThreadWorker(3), ThreadWorker(1)
    async with anyio.create_task_group() as tasks:
        for _ in range(60):
            tasks.start_soon(busy.run, released.wait)
        await anyio.wait_all_tasks_blocked()
        assert await other.run(lambda: "done") == "done"
        released.set()
