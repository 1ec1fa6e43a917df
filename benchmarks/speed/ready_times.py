"""How soon a GGUF answers, and in how much memory: `python -m benchmarks.speed.ready_times`.

The file has random blocks in Q4_K_M, so that a shape needs no download. `draftwerk serve` is
started with an empty cache folder but for the compiled kernels, and again; its processes' memory
(PSS, of all together) is read while it starts and answers. Texts of random weights repeat nothing:
drafts are all refused, which is the most that they can cost. `--loads 5` unloads the model and
loads it again so often: the first load measures steps, the others find that.
"""

import argparse
import json
import os
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from time import perf_counter
from typing import Any

import aiohttp
import anyio

from benchmarks.support.bench import ResultTable, middle, run, show
from benchmarks.support.mixed_gguf import LLAMA_SHAPES, write
from benchmarks.support.server import draftwerk
from draftwerk.machine.host import held_bytes, proportional_bytes
from draftwerk.model.checkpoint.hub import cache_directory

SAMPLE_S = 0.25
PROMPT = "The rivers of Europe, in the order of their length, are "
STARTS = ("first start", "second start")


class MemoryPeak:
    """The most memory that a server's processes have had in two samples, one after the other.

    Processes are not read at once: while one begins to map another's pages, both are counted.
    """

    def __init__(self) -> None:
        self.peak = 0
        self._last = 0

    async def watch(self) -> None:
        """Sample this process's children until cancelled."""
        own = os.getpid()
        while True:
            found = await anyio.to_thread.run_sync(proportional_bytes, own)
            self._add(found - held_bytes(own))
            await anyio.sleep(SAMPLE_S)

    def _add(self, found: int) -> None:
        self.peak = max(self.peak, min(self._last, found))
        self._last = found


async def answer(url: str, tokens: int, speculation: bool) -> tuple[float, float]:
    """Return the seconds to the first token, and the tokens a second after it."""
    body = {
        "prompt": PROMPT * 4,
        "max_tokens": tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "speculation": {"enabled": speculation},
        "cache_salt": str(perf_counter()),
    }
    begun, times = perf_counter(), list[float]()
    async with (
        aiohttp.ClientSession() as http,
        http.post(url + "/v1/completions", json=body) as reply,
    ):
        reply.raise_for_status()
        async for line in reply.content:
            if line.startswith(b"data: {") and json.loads(line[6:]).get("choices"):
                times.append(perf_counter())
    return times[0] - begun, (tokens - 1) / (times[-1] - times[0])


async def add_start(found: ResultTable, name: str, path: Path, given: argparse.Namespace) -> None:
    """Start once, ask twice, and add a row."""
    memory, begun, ready_s = MemoryPeak(), perf_counter(), 0.0
    plain = drafted = (0.0, 0.0)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(memory.watch)
        async with draftwerk(str(path), "--kv-memory", given.kv_memory, *given.options) as server:
            ready_s = perf_counter() - begun
            plain = await answer(server.url, given.tokens, False)
            drafted = await answer(server.url, given.tokens, True)
        tasks.cancel_scope.cancel()
    found.add(name, ready_s, memory.peak / size_of(path), *plain, drafted[1])


async def loads(path: Path, given: argparse.Namespace) -> list[float]:
    """Return the seconds that each load takes of a server that unloads models."""
    words = (str(path), "--keep-alive=-1", "--kv-memory", given.kv_memory, *given.options)
    async with draftwerk(*words) as server, aiohttp.ClientSession(server.url) as http:
        async with http.get("/v1/models") as response:
            model: str = (await response.json())["data"][0]["id"]
        found: list[float] = []
        for _ in range(1 + given.loads):
            found.append((await turned(http, "load", model, "ready"))["load_s"])
            await turned(http, "unload", model, "unloaded")
        return found


async def turned(http: aiohttp.ClientSession, what: str, model: str, state: str) -> dict[str, Any]:
    """Ask for a model to be loaded or unloaded, and return its row once it is."""
    async with http.post(f"/v1/models/{what}", json={"model": model}) as response:
        row = await response.json()
    while row["state"] != state:
        assert not row["fault"], row["fault"]
        await anyio.sleep(SAMPLE_S / 5)
        async with http.get(f"/v1/models/{model}") as response:
            row = await response.json()
    return row


def file_of(given: argparse.Namespace) -> Path:
    """Return the file of a shape, written if it is not there."""
    path = given.folder / f"{given.shape}-Q4_K_M.gguf"
    return write(path, LLAMA_SHAPES[given.shape], "Q4_K_M")


def size_of(path: Path) -> int:
    """Return the bytes of a file, or of those of a folder that are no links."""
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(each.stat().st_size for each in files if each.is_file() and not each.is_symlink())


def with_kernels(cache: Path) -> None:
    """Put links to the compiled kernels into an empty cache folder."""
    (cache / "draftwerk").mkdir()
    for library in cache_directory().glob("native-*"):
        with suppress(OSError):
            (cache / "draftwerk" / library.name).symlink_to(library)


async def measure(given: argparse.Namespace) -> ResultTable:
    """Return a row for each start."""
    found = ResultTable(
        ["", "ready, s", "memory / file", "first token, s", "tok/s, no drafts", "tok/s, drafts"]
    )
    path = file_of(given)
    with tempfile.TemporaryDirectory() as folder:
        with_kernels(Path(folder))
        os.environ["XDG_CACHE_HOME"] = folder
        for name in STARTS:
            await add_start(found, name, path, given)
        if given.loads:
            first, *again = await loads(path, given)
            found.notes.append(f"loaded in {first:.2f} s, again in {middle(again):.2f} s (median)")
        written = size_of(Path(folder))
    sizes = f"file {size_of(path) / 1e9:.2f} GB; written to disk {written / 1e6:.1f} MB"
    found.notes.append(sizes)
    return found


def table(argv: Sequence[str] | None = None) -> ResultTable:
    """Write the file if it is not there, and measure."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--shape", choices=LLAMA_SHAPES, default="1B")
    options.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    options.add_argument("--tokens", type=int, default=48)
    options.add_argument("--kv-memory", default="256MiB")
    options.add_argument("--loads", type=int, default=0, help="again, after the starts")
    options.add_argument("options", nargs="*", help="of draftwerk serve, behind --")
    return run(measure, options.parse_args(argv))


if __name__ == "__main__":
    show(table)
