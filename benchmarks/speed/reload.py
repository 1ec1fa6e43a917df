"""How long a model takes to be loaded again by a server that unloads models.

    python -m benchmarks.speed.reload [MODEL] [--shape 1B]

Without a model a random GGUF of a shape is written. The first load measures steps; the others find
that, and the packed weights in the cache where they are kept.
"""

import argparse
import asyncio
import json
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import aiohttp

from benchmarks.support.mixed_gguf import LLAMA_SHAPES, write
from benchmarks.support.server import draftwerk

POLL_S = 0.05


async def loads(arguments: argparse.Namespace, path: str) -> list[float]:
    """Return the seconds of each load, in turn."""
    words = [path, "--keep-alive=-1", "--dtype", arguments.dtype, "--kv-memory", "256MiB"]
    async with draftwerk(*words) as server, aiohttp.ClientSession(server.url) as http:
        return [await load(http) for _ in range(1 + arguments.repeats)]


async def load(http: aiohttp.ClientSession) -> float:
    """Load the server's model, unload it, and return the seconds that loading took."""
    async with http.get("/v1/models") as response:
        model: str = (await response.json())["data"][0]["id"]
    row = await turned(http, "load", model, "ready")
    await turned(http, "unload", model, "unloaded")
    return row["load_s"]


async def turned(http: aiohttp.ClientSession, what: str, model: str, state: str) -> dict[str, Any]:
    """Ask for a model to be loaded or unloaded, and return its row once it is."""
    async with http.post(f"/v1/models/{what}", json={"model": model}) as response:
        row = await response.json()
    while row["state"] != state:
        assert not row["fault"], row["fault"]
        await asyncio.sleep(POLL_S)
        async with http.get(f"/v1/models/{model}") as response:
            row = await response.json()
    return row


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__)
    made.add_argument("model", nargs="?", default="", help="a directory or a GGUF file")
    made.add_argument("--shape", choices=LLAMA_SHAPES, default="1B")
    made.add_argument("--dtype", default="auto")
    made.add_argument("--repeats", type=int, default=5)
    return made


def main() -> None:
    arguments = parser().parse_args()
    with TemporaryDirectory() as folder:
        path = arguments.model
        if not path:
            file = Path(folder) / f"{arguments.shape}.gguf"
            path = str(write(file, LLAMA_SHAPES[arguments.shape], "Q4_K_M"))
        first, *again = asyncio.run(loads(arguments, path))
    print(json.dumps({"first_s": first, "again_s": again, "median_s": median(again)}, indent=1))


if __name__ == "__main__":
    main()
