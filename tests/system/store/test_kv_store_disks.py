"""An engine whose store is full, then read-only, and a server that is killed as it writes."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import anyio
import pytest

from draftwerk_tools.loadtest.server.launcher import free_port, says_ready
from draftwerk_tools.loadtest.server.launcher import serving as process_of
from tests.system.store.test_kv_store import (
    PROMPTS,
    counted,
    fields_of,
    records,
    storing,
    texts_of,
)

pytestmark = pytest.mark.asyncio
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
