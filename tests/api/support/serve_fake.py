"""`draftwerk serve` with the fake engine, for tests that need a process and its signals."""

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from draftwerk.api.core.config import Settings, load
from draftwerk.api.core.ports import RunningServer, ServedModel
from draftwerk.api.serving.server import serve
from tests.api.support.fake_engine import ByteText, FakeEngine


@asynccontextmanager
async def build(
    settings: Settings, report: Callable[[str], None]
) -> AsyncGenerator[RunningServer, None]:
    report("loading the fake")
    await asyncio.sleep(float(os.environ.get("FAKE_LOAD_S", "0")))
    if settings.model == "broken":
        raise RuntimeError("the weights are not there")
    card = ServedModel(name="fake-model", context_max=4096, vocab_size=257)
    yield RunningServer(engine=FakeEngine(step_s=0.01), text_tools=ByteText(), model=card)


if __name__ == "__main__":
    flags = dict(each.split("=") for each in sys.argv[1:])
    sys.exit(serve(load(flags, {}), build))
