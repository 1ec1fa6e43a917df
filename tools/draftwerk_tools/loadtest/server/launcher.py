"""A server as a child process: started, waited for, stopped with everything it started."""

import asyncio
import os
import signal
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import aiohttp
import msgspec

from draftwerk_tools.loadtest.server.reply_types import ModelList

STOP_S = 20.0
ANSWER_S = 60.0
POLL_S = 0.1
PORTS = range(20_000, 32_768)
"""Below those that systems give to outgoing connections, which would take them meanwhile."""
NO_PORT = "no port is free; choose one with --port"
PROBE = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}
ReadyCheck = Callable[[aiohttp.ClientSession, str], Awaitable[bool]]


class ServerFailed(ValueError):
    """The server died or never became ready; the message names its log."""


@dataclass(slots=True)
class Server:
    """A running server; `exit_code` is None until it has ended."""

    url: str
    process: asyncio.subprocess.Process = field(repr=False)

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def exit_code(self) -> int | None:
        return self.process.returncode


async def answers(session: aiohttp.ClientSession, url: str) -> bool:
    """Whether it lists a model and has one to answer with: some list it while they read it."""
    timeout = aiohttp.ClientTimeout(total=ANSWER_S)
    async with session.get(f"{url}/v1/models", timeout=timeout) as response:
        if response.status != 200:
            return False
        listed = msgspec.json.decode(await response.read(), type=ModelList)
    asked = PROBE | {"model": listed.data[0].id if listed.data else "default"}
    async with session.post(f"{url}/v1/chat/completions", json=asked, timeout=timeout) as response:
        await response.read()
        return response.status != 503


async def says_ready(session: aiohttp.ClientSession, url: str) -> bool:
    """Whether `/ready` is 200: cheaper than a request, where the server has it, and not counted."""
    async with session.get(f"{url}/ready", timeout=aiohttp.ClientTimeout(ANSWER_S)) as response:
        return response.status == 200


@asynccontextmanager
async def serving(
    command: Sequence[str],
    url: str,
    *,
    env: Mapping[str, str] | None = None,
    log: Path | None = None,
    start_s: float = 120.0,
    ready: ReadyCheck = answers,
    prepare: Callable[[], None] | None = None,
) -> AsyncGenerator[Server]:
    """Keep a server running inside the block; its output goes to the log, or nowhere.

    `prepare` is called in its process before its program begins.
    Raises ServerFailed if it ends or `start_s` pass before it is ready.
    """
    if log is not None:
        log.parent.mkdir(parents=True, exist_ok=True)
    with (log or Path(os.devnull)).open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, **(env or {})},
            start_new_session=True,
            preexec_fn=prepare,
        )
    server = Server(url, process)
    try:
        await _until_ready(server, ready, start_s, f": see {log}" if log else "")
        yield server
    finally:
        await _stop(process)


async def wait_ready(
    url: str, start_s: float = 120.0, ready: ReadyCheck = says_ready, poll_s: float = POLL_S
) -> None:
    """Wait for a server that runs already. Raises TimeoutError."""
    async with asyncio.timeout(start_s), aiohttp.ClientSession() as session:
        while not await _is_ready(session, url, ready):  # noqa: ASYNC110 (nobody announces it)
            await asyncio.sleep(poll_s)


def free_port(wanted: int = 0) -> int:
    """Return a free port, so that only the new server answers on it: the one wanted, if any."""
    for port in [wanted] if wanted else Random().sample(PORTS, len(PORTS)):
        with socket.socket() as probe, suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            return port
    raise ValueError(f"port {wanted} is taken; choose another with --port" if wanted else NO_PORT)


async def _until_ready(server: Server, ready: ReadyCheck, start_s: float, where: str) -> None:
    waiting = asyncio.create_task(wait_ready(server.url, start_s, ready))
    ending = asyncio.create_task(server.process.wait())
    try:
        await asyncio.wait((waiting, ending), return_when=asyncio.FIRST_COMPLETED)
        if ending.done():
            raise ServerFailed(f"the server exited with {ending.result()}{where}")
        await waiting
    except TimeoutError as error:
        raise ServerFailed(f"the server was not ready after {start_s:g} s{where}") from error
    finally:
        waiting.cancel()
        ending.cancel()
        await asyncio.gather(waiting, ending, return_exceptions=True)


async def _is_ready(session: aiohttp.ClientSession, url: str, ready: ReadyCheck) -> bool:
    with suppress(aiohttp.ClientError, ConnectionError, TimeoutError, msgspec.MsgspecError):
        return await ready(session, url)
    return False


async def _stop(process: asyncio.subprocess.Process) -> None:
    """Send SIGTERM, and after a while kill the whole group."""
    with suppress(ProcessLookupError):
        process.terminate()
    with suppress(TimeoutError):
        async with asyncio.timeout(STOP_S):
            await process.wait()
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()
