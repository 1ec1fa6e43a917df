"""`draftwerk serve` in a process of its own, and waiting until it has nothing to do."""

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from time import perf_counter

import aiohttp

from draftwerk.machine.host import die_with_parent
from draftwerk_tools.loadtest.server.launcher import Server, free_port, says_ready, serving


@asynccontextmanager
async def draftwerk(*options: str) -> AsyncGenerator[Server]:
    """Serve with these options while the block lasts; yields the server once it is ready.

    Raises AssertionError if the server does not exit with 0 on SIGTERM.
    """
    port = free_port()
    command = [sys.executable, "-m", "draftwerk", "serve", "--port", str(port), *options]
    url = f"http://127.0.0.1:{port}"
    async with serving(command, url, ready=says_ready, prepare=die_with_parent) as server:
        yield server
    assert server.exit_code == 0, f"the server's exit code is {server.exit_code}"


QUIET_S = 0.6
"""Without a round for so long, it has nothing to do; on a busy machine a round may take longer."""


async def quiet(http: aiohttp.ClientSession, url: str, quiet_s: float = QUIET_S) -> None:
    """Wait until the server computes no rounds."""
    rounds, since = "", perf_counter()
    while perf_counter() - since < quiet_s:
        async with http.get(url + "/metrics") as reply:
            lines = (await reply.text()).splitlines()
        now = next(each for each in lines if each.startswith("draftwerk_rounds_total"))
        if now != rounds:
            rounds, since = now, perf_counter()
        await asyncio.sleep(0.1)
