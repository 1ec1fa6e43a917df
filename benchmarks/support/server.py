"""`draftwerk serve` in a process of its own."""

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from draftwerk.loadtest.server.launcher import Server, free_port, says_ready, serving


@asynccontextmanager
async def draftwerk(*options: str) -> AsyncGenerator[Server]:
    """Serve with these options while the block lasts; yields the server once it is ready.

    Raises AssertionError if the server does not exit with 0 on SIGTERM.
    """
    port = free_port()
    command = [sys.executable, "-m", "draftwerk", "serve", "--port", str(port), *options]
    async with serving(command, f"http://127.0.0.1:{port}", ready=says_ready) as server:
        yield server
    assert server.exit_code == 0, f"the server's exit code is {server.exit_code}"
