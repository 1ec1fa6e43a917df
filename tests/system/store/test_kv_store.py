"""Whole servers over one folder of kept blocks: restarts and damage change no text."""

import random
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio

from benchmarks.support.server import draftwerk
from draftwerk.loadtest.server.metrics import MetricsPage, fetch_metrics

pytestmark = pytest.mark.asyncio(loop_scope="module")

PROMPTS = [f"{number} tell me of " + "the sea and the land " * 6 for number in range(4)]


class Server:
    """A running server."""

    def __init__(self, http: aiohttp.ClientSession, url: str) -> None:
        self.http, self.url = http, url

    async def texts(self) -> list[str]:
        found: list[str] = []
        for number, prompt in enumerate(PROMPTS):
            body = {
                "prompt": prompt,
                "max_tokens": 24,
                "temperature": number % 2,
                "seed": number,
                "ignore_eos": True,
            }
            async with self.http.post(f"{self.url}/v1/completions", json=body) as response:
                assert response.status == 200, await response.text()
                found.append((await response.json())["choices"][0]["text"])
        return found

    async def metrics(self) -> MetricsPage:
        return await fetch_metrics(self.http, self.url)


def records(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.kv"))


def damage(paths: list[Path]) -> None:
    """Flip a bit, cut, overwrite, or spare each record."""
    rng = random.Random(1)
    for path in paths:
        data = bytearray(path.read_bytes())
        match rng.randrange(4):
            case 0:
                data[rng.randrange(len(data))] ^= 1
            case 1:
                del data[rng.randrange(len(data)) :]
            case 2:
                data[:] = rng.randbytes(len(data))
            case _:
                continue
        path.write_bytes(data)


@asynccontextmanager
async def serving(model: Path, *options: str) -> AsyncGenerator[Server]:
    words = (str(model), "--dtype", "fp32", "--kv-memory", "8MiB", "--spare", "off", *options)
    async with draftwerk(*words) as server, aiohttp.ClientSession() as http:
        yield Server(http, server.url)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plain(model: Path) -> list[str]:
    async with serving(model) as server:
        return await server.texts()


async def test_a_restart_finds_what_was_kept_and_damage_is_a_miss(
    model: Path, plain: list[str], tmp_path: Path
) -> None:
    options = ("--kv-store", str(tmp_path))
    async with serving(model, *options) as server:
        assert await server.texts() == plain
    assert len(records(tmp_path)) > len(PROMPTS)
    async with serving(model, *options) as server:
        assert await server.texts() == plain
        page = await server.metrics()
        assert page.total("draftwerk_kv_store_hits_total") > 0
        assert page.total("vllm:prefix_cache_hits_total") > 0
        assert page.total("draftwerk_kv_store_refused_total") == 0
    damage(records(tmp_path))
    async with serving(model, *options) as server:
        assert await server.texts() == plain
        page = await server.metrics()
        assert page.total("draftwerk_kv_store_refused_total") > 0
        assert page.total("draftwerk_actor_restarts_total") == 0


async def test_two_servers_and_a_small_bound_share_a_folder(
    model: Path, plain: list[str], tmp_path: Path
) -> None:
    options = ("--kv-store", str(tmp_path), "--kv-store-size", "64KiB")
    async with serving(model, *options) as one, serving(model, *options) as two:
        for _ in range(2):
            assert await one.texts() == plain
            assert await two.texts() == plain
        for path in records(tmp_path)[::2]:
            path.unlink(missing_ok=True)
        assert await one.texts() == await two.texts() == plain
    assert sum(path.stat().st_size for path in records(tmp_path)) <= 64 * 1024
