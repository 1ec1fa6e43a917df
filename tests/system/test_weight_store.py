"""A whole server of experts in a file, whose model processes are killed under live streams."""

import argparse
from pathlib import Path

import pytest

from benchmarks.reliability.kills import KillRun, compare, parser, started
from draftwerk.__main__ import main
from draftwerk.machine.host import family
from tests.support.tiny_models import save_tiny_with_text

pytestmark = pytest.mark.asyncio

SERVE = ("--kv-memory", "64MiB", "--stall-s", "1", "--spare", "imports")
SIZES = {"hidden_size": 64, "intermediate_size": 96, "moe_intermediate_size": 64, "head_dim": 16}


def given(model: Path, *options: str) -> argparse.Namespace:
    words = ("--model", str(model), "--streams", "4", "--tokens", "60", "--process", "target")
    return parser().parse_args([*words, "--count", "2", "--hasty", "--", *SERVE, *options])


def mapped_by(process_id: int) -> str:
    """Return what a server and its model processes map."""
    return "".join(Path(f"/proc/{each}/maps").read_text() for each in family(process_id))


async def run(arguments: argparse.Namespace, count: int) -> KillRun:
    async with started(arguments) as server:
        return await server.run(arguments, count)


async def test_killed_processes_find_their_weights_and_nothing_is_left(tmp_path: Path) -> None:
    save_tiny_with_text(tmp_path / "source", 3, "qwen3_moe", **SIZES)
    model, folder = tmp_path / "experts.gguf", tmp_path / "store"
    folder.mkdir()
    assert main(["quantise", str(tmp_path / "source"), "Q4_0", "-o", str(model)]) == 0
    in_memory = await run(given(model), 0)
    arguments = given(model, "--weight-store", str(folder))
    async with started(arguments) as server:
        on_disk = await server.run(arguments, 2)
        assert f"{folder}/" in mapped_by(server.pid), "a file's pages"
        assert not list(folder.iterdir()), "it has no name, so that no end of the server leaves it"
    compare(in_memory, on_disk)
    assert on_disk.counted["recoveries"] == 2
    assert on_disk.counted["restarts"] == 0
