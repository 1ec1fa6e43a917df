"""The watch notes by how much the client's own loop oversleeps."""

import asyncio
import time

from draftwerk_tools.loadtest.client.clock import clock_from_now
from draftwerk_tools.loadtest.client.health import LoopWatch


def test_a_loop_that_is_blocked_is_seen() -> None:
    async def main() -> None:
        watch = LoopWatch(clock_from_now())
        assert watch.health().ticks == 0
        task = asyncio.create_task(watch.run())
        await asyncio.sleep(0.05)
        time.sleep(0.2)  # noqa: ASYNC251
        await asyncio.sleep(0.05)
        task.cancel()
        found = watch.health()
        assert found.ticks > 0 and found.lag_max_ms > 100

    asyncio.run(main())
