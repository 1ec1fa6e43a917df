"""Engines over one folder of kept blocks, or their peers': no restart or damage changes a text."""

import asyncio
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import pytest
import pytest_asyncio

from draftwerk import AsyncLLM, SamplingParams
from draftwerk_tools.loadtest.server.launcher import free_port, says_ready
from draftwerk_tools.loadtest.server.launcher import serving as process_of
from tests.support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

PROMPTS = [f"{number} tell me of " + "the sea and the land " * 6 for number in range(4)]


def fields_of(number: int) -> dict[str, Any]:
    """Return how the prompt of a number is continued."""
    return {"max_tokens": 24, "temperature": number % 2, "seed": number, "ignore_eos": True}


async def texts_of(llm: AsyncLLM) -> list[str]:
    return [
        (await llm.generate(prompt, SamplingParams(**fields_of(number)))).text
        for number, prompt in enumerate(PROMPTS)
    ]


def counted(llm: AsyncLLM, what: str) -> float:
    """Return a counter of an engine's second tier."""
    return llm.snapshot().store[what]


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


def storing(model: Path, **settings: Any) -> AsyncLLM:
    """Return an engine whose cache is small; `settings` say where it keeps blocks."""
    return AsyncLLM(model, dtype="fp32", kv_memory="8MiB", **settings)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plain(model: Path) -> list[str]:
    async with storing(model) as llm:
        return await texts_of(llm)


async def test_a_restart_finds_what_was_kept_and_damage_is_a_miss(
    model: Path, plain: list[str], tmp_path: Path
) -> None:
    async with storing(model, kv_store=str(tmp_path)) as llm:
        assert await texts_of(llm) == plain
    assert len(records(tmp_path)) > len(PROMPTS)
    async with storing(model, kv_store=str(tmp_path)) as llm:
        assert await texts_of(llm) == plain
        assert counted(llm, "hits") > 0
        assert llm.snapshot().counts.prefix_hits > 0
        assert counted(llm, "refused") == 0
    damage(records(tmp_path))
    async with storing(model, kv_store=str(tmp_path)) as llm:
        assert await texts_of(llm) == plain
        assert counted(llm, "refused") > 0
        assert llm.snapshot().actors.restarts == 0


async def test_two_engines_and_a_small_bound_share_a_folder(
    model: Path, plain: list[str], tmp_path: Path
) -> None:
    settings = {"kv_store": str(tmp_path), "kv_store_size": "64KiB"}
    async with storing(model, **settings) as one, storing(model, **settings) as two:
        for _ in range(2):
            assert await texts_of(one) == plain
            assert await texts_of(two) == plain
        for path in records(tmp_path)[::2]:
            path.unlink(missing_ok=True)
        assert await texts_of(one) == await texts_of(two) == plain
    assert sum(path.stat().st_size for path in records(tmp_path)) <= 64 * 1024


DISK = "96k"
"""Room for some of the records that the prompts leave."""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small disk of its own; needs the right to mount one."""
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK},mode=700", "tmpfs", str(tmp_path)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode != 0:
        pytest.skip("this user may not mount a disk")
    yield tmp_path
    subprocess.run(["umount", "--lazy", str(tmp_path)], check=True)


async def test_a_full_disk_and_a_read_only_one_change_no_text(model: Path, disk: Path) -> None:
    settings = {"kv_store": str(disk), "kv_store_size": "1GiB"}
    async with storing(model, **settings) as llm:
        texts = await texts_of(llm)
        # Those that were let go are written behind: all prompts together are more than the disk.
        while counted(llm, "failed_writes") == 0:
            assert await texts_of(llm) == texts
        assert records(disk), "what fitted was kept"
        await anyio.run_process(["mount", "-o", "remount,ro", str(disk)])
        assert await texts_of(llm) == texts
        assert llm.snapshot().actors.restarts == 0
    async with storing(model, **settings) as llm:  # the next one finds it read-only
        assert await texts_of(llm) == texts
        assert counted(llm, "hits") > 0
        assert counted(llm, "refused") == 0
        assert llm.snapshot().actors.restarts == 0


async def test_a_server_killed_as_it_writes_leaves_no_half_record(
    model: Path, tmp_path: Path
) -> None:
    words = [str(model), "--dtype", "fp32", "--kv-memory", "8MiB", "--spare", "off"]
    url = f"http://127.0.0.1:{free_port()}"
    command = [sys.executable, "-m", "draftwerk", "serve", *words, "--port", url.rpartition(":")[2]]
    texts: list[str] = []
    async with process_of(
        [*command, "--kv-store", str(tmp_path)], url, ready=says_ready
    ) as process:
        async with aiohttp.ClientSession() as http:
            for number, prompt in enumerate(PROMPTS):
                body = {"prompt": prompt, **fields_of(number)}
                async with http.post(f"{url}/v1/completions", json=body) as response:
                    texts.append((await response.json())["choices"][0]["text"])
        while not records(tmp_path):  # noqa: ASYNC110 - it writes behind the answers
            await asyncio.sleep(0.002)
        os.kill(process.pid, signal.SIGKILL)
    async with storing(model, kv_store=str(tmp_path)) as llm:
        assert await texts_of(llm) == texts
        assert counted(llm, "hits") > 0
        assert counted(llm, "refused") == 0


def peer(model: Path, folder: Path, *peers: int, listen: int = 0) -> AsyncLLM:
    key = folder / "key"
    key.write_text("a secret of all of these\n")
    others = tuple(f"127.0.0.1:{port}" for port in peers)
    door = {"kv_listen": f"127.0.0.1:{listen}"} if listen else {}
    return storing(model, kv_key=str(key), kv_peers=others, **door)


async def knows_blocks(llm: AsyncLLM) -> None:
    """Wait until an engine has been told what its peers hold."""
    await until(lambda: counted(llm, "blocks") >= len(PROMPTS))


async def test_blocks_are_fetched_from_the_engine_that_has_them_and_moved_when_it_leaves(
    model: Path, tmp_path: Path
) -> None:
    port, other = free_port(), free_port()
    async with peer(model, tmp_path, port, listen=other) as two:
        async with peer(model, tmp_path, listen=port) as one:
            plain = await texts_of(one)
            await knows_blocks(two)
            assert await texts_of(two) == plain
            fetched = counted(two, "hits")
            assert fetched > 0
        # It has gone in order, and what it computed behind the prompts was fetched as it left.
        assert counted(two, "hits") >= fetched
        assert await texts_of(two) == plain
        async with peer(model, tmp_path, other) as three:
            await knows_blocks(three)
            assert await texts_of(three) == plain
            assert counted(three, "hits") > 0
