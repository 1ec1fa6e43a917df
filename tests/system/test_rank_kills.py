"""An engine whose target is divided: a rank's death is a device's death."""

from functools import partial
from pathlib import Path

from draftwerk.assembly.build import build_engine
from draftwerk.settings.engine_settings import EngineSettings
from tests.support.engine_texts import any_request, texts_of, though_killed


async def test_a_killed_rank_changes_no_text(model: Path) -> None:
    settings = EngineSettings(
        model=str(model), dtype="fp32", kv_memory="64MiB", spare="off", tensor_parallel=2
    )
    async with build_engine(settings, print) as found:
        ask = partial(texts_of, found.engine, any_request, 5)
        plain = await ask()
        assert await though_killed(found.engine, ask, "rank 1") == plain
        counted = found.engine.snapshot()
        assert (counted.actors.restarts, counted.models.recoveries) == (0, 1)
