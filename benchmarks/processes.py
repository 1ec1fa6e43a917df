"""A server in a process of its own, its model processes, and what its metrics say."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.streams import wait_ready


@asynccontextmanager
async def serving(arguments: Sequence[str]) -> AsyncGenerator[tuple[str, int]]:
    """Run `draftwerk serve` with these arguments; yields its URL and process id once it is ready.

    Raises AssertionError if it does not end with exit code 0.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "draftwerk", "serve", "--port", str(port), *arguments]
    server = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.DEVNULL)
    try:
        url = f"http://127.0.0.1:{port}"
        async with aiohttp.ClientSession() as http:
            await wait_ready(http, url)
        yield url, server.pid
    except BaseException:
        server.kill()
        raise
    else:
        server.send_signal(signal.SIGTERM)
        code = await server.wait()
        assert code == 0, f"the server's exit code is {code}"
    finally:
        await server.wait()


def model_process(server: int, role: str) -> int | None:
    """Return the id of the server's target or draft process, if there is one."""
    for child in children(server):
        with suppress(OSError):  # it has gone
            if role.encode() in Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0"):
                return child
    return None


def children(process: int) -> list[int]:
    """Return a process's children."""
    tasks = Path(f"/proc/{process}/task").iterdir()
    found: list[int] = []
    for task in tasks:
        with suppress(OSError):  # a thread that has ended
            found += map(int, (task / "children").read_text().split())
    return found


def rss_mb(process: int) -> float:
    """Return a process's resident memory in MB."""
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


async def metrics(http: aiohttp.ClientSession, url: str) -> dict[str, float]:
    """Return every metric by name; one with labels as name{value of its last label}."""
    async with http.get(url + "/metrics") as response:
        text = await response.text()
    return {
        sample.name
        + (f"{{{[*sample.labels.values()][-1]}}}" if sample.labels else ""): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
