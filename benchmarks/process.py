"""A server process as users start it, and what can be counted of it from outside."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import httpx
from prometheus_client.parser import text_string_to_metric_families

COUNTS = {
    "blocks": "draftwerk_blocks_used",
    "generations": "draftwerk_generations",
    "running": "vllm:num_requests_running",
    "waiting": "vllm:num_requests_waiting",
    "sockets": "draftwerk_sockets",
    "tasks": "draftwerk_tasks",
}


@asynccontextmanager
async def server(*options: str) -> AsyncGenerator[tuple[str, int]]:
    """Run `draftwerk serve` with these options while the block lasts; yields its URL and pid."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "draftwerk", "serve", "--port", str(port), *options]
    quiet = asyncio.subprocess.DEVNULL
    child = await asyncio.create_subprocess_exec(*command, stdout=quiet, stderr=quiet)
    url = f"http://127.0.0.1:{port}"
    try:
        await until_ready(url, child)
        yield url, child.pid
    finally:
        if child.returncode is None:
            child.send_signal(signal.SIGTERM)
        print(f"the server's exit code: {await child.wait()}")


async def until_ready(url: str, child: asyncio.subprocess.Process, within_s: float = 120) -> None:
    """Wait until the server takes requests. Raises RuntimeError if it ends first."""
    async with asyncio.timeout(within_s), httpx.AsyncClient() as http:
        while child.returncode is None:
            with suppress(httpx.HTTPError):
                if (await http.get(url + "/ready")).status_code == 200:
                    return
            await asyncio.sleep(0.1)
    raise RuntimeError("the server ended before it was ready")


async def metrics(url: str) -> dict[str, float]:
    """Return every metric without labels, or with the model's name as its only one."""
    async with httpx.AsyncClient() as http:
        text = (await http.get(url + "/metrics")).text
    return {
        sample.name: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if not sample.labels.keys() - {"model_name"}
    }


async def counts(url: str, pid: int) -> dict[str, int]:
    """Return what must not grow: of the engine, of the event loop, and of the process."""
    found = await metrics(url)
    descriptors = len(await asyncio.to_thread(os.listdir, Path(f"/proc/{pid}/fd")))
    return {name: int(found[metric]) for name, metric in COUNTS.items()} | {
        "descriptors": descriptors
    }
