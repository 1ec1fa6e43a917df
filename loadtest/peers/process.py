"""A server as a child process: started, waited for, stopped with everything it started."""

import asyncio
import os
import signal
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import aiohttp
import msgspec

from draftwerk.loadtest.client.reply_types import ModelList

STOP_S = 20.0
ANSWER_S = 60.0
PROBE = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}


class ServerFailed(ValueError):
    """The server died or never became ready; the message names its log."""


@asynccontextmanager
async def serving(
    command: Sequence[str], env: Mapping[str, str], url: str, log: Path, start_s: float
) -> AsyncGenerator[None]:
    """Keep a server running inside the block; it is ready when it answers a request."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, **env},
            start_new_session=True,
        )
    try:
        await _ready(process, url, log, start_s)
        yield
    finally:
        await _stop(process)


async def _ready(process: asyncio.subprocess.Process, url: str, log: Path, start_s: float) -> None:
    try:
        async with asyncio.timeout(start_s), aiohttp.ClientSession() as session:
            while not await _answers(session, url):
                if process.returncode is not None:
                    raise ServerFailed(f"the server exited with {process.returncode}: see {log}")
                await asyncio.sleep(0.25)
    except TimeoutError as error:
        raise ServerFailed(f"the server was not ready after {start_s:g} s: see {log}") from error


async def _answers(session: aiohttp.ClientSession, url: str) -> bool:
    """Whether it lists a model and has one to answer with: some list it while they read it."""
    timeout = aiohttp.ClientTimeout(total=ANSWER_S)
    try:
        async with session.get(f"{url}/v1/models", timeout=timeout) as response:
            if response.status != 200:
                return False
            listed = msgspec.json.decode(await response.read(), type=ModelList)
        asked = PROBE | {"model": listed.data[0].id if listed.data else "default"}
        completions = f"{url}/v1/chat/completions"
        async with session.post(completions, json=asked, timeout=timeout) as response:
            await response.read()
            return response.status != 503
    except (aiohttp.ClientError, ConnectionError, TimeoutError, msgspec.MsgspecError):
        return False


async def _stop(process: asyncio.subprocess.Process) -> None:
    """Ask the whole group to end, then make it."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, sign)
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_S):
                await process.wait()
