"""Experts in a file whose packed weights lie in a folder: killed processes find them there."""

import os
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from draftwerk.__main__ import main
from draftwerk.assembly.build import build_engine
from draftwerk.machine.host import family
from draftwerk.settings.engine_settings import EngineSettings
from tests.support.engine_texts import any_request, texts_of, though_killed
from tests.support.tiny_models import save_tiny_with_text

SIZES = {"hidden_size": 64, "intermediate_size": 96, "moe_intermediate_size": 64, "head_dim": 16}
REQUESTS = 4


def mapped_by(process_id: int) -> str:
    """Return what a process and its model processes map."""
    return "".join(Path(f"/proc/{each}/maps").read_text() for each in family(process_id))


async def test_killed_processes_find_their_weights_and_nothing_is_left(tmp_path: Path) -> None:
    save_tiny_with_text(tmp_path / "source", 3, "qwen3_moe", **SIZES)
    model, folder = tmp_path / "experts.gguf", tmp_path / "store"
    folder.mkdir()
    words = ["quantise", str(tmp_path / "source"), "Q4_0", "-o", str(model), "--no-measure"]
    assert main(words) == 0
    settings = EngineSettings(model=str(model), kv_memory="64MiB", spare="off")
    async with build_engine(settings, print) as found:
        in_memory = await texts_of(found.engine, any_request, REQUESTS)
    async with build_engine(replace(settings, weight_store=str(folder)), print) as found:
        ask = partial(texts_of, found.engine, any_request, REQUESTS)
        for kills in (1, 2):
            assert await though_killed(found.engine, ask) == in_memory
            assert found.engine.snapshot().models.recoveries == kills
        assert f"{folder}/" in mapped_by(os.getpid()), "a file's pages"
        assert not list(folder.iterdir()), "it has no name, so that no end of an engine leaves it"
