"""`draftwerk serve` with the fake engine, for tests that need a process and its signals.

What holds, the loading if FAKE_HOLDS is set and then each `!held`, goes on after a SIGUSR1.
"""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from draftwerk.api.app.server import serve
from draftwerk.api.shared.config import Settings, load
from draftwerk.api.shared.ports import RunningServer, ServedModel
from tests.api.support.fake_engine import ByteText, FakeEngine


@asynccontextmanager
async def build(
    settings: Settings, report: Callable[[str], None]
) -> AsyncGenerator[RunningServer, None]:
    report("loading the fake")
    engine, loads = FakeEngine(step_s=0.01), asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, loads.set)
    if "FAKE_HOLDS" in os.environ:
        await loads.wait()
    if settings.model == "broken":
        raise RuntimeError("the weights are not there")
    card = ServedModel(name="fake-model", context_max=4096, vocab_size=257)
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, engine.released.set)
    yield RunningServer(engine=engine, text_tools=ByteText(), model=card)


if __name__ == "__main__":
    flags = dict(each.split("=") for each in sys.argv[1:])
    sys.exit(serve(load(flags, {}), build))
