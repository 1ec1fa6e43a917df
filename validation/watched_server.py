"""A server under test whose chats, and whose processes' memory, are watched meanwhile."""

import asyncio
import os
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import aiohttp

from benchmarks.support.bench import percentile

MIB = 2**20
WATCH_S = 0.05
SERVER_GROWTH_MAX = 256 * MIB
"""Of the server itself, above what it takes once it has served a request."""


@dataclass(slots=True)
class WatchedServer:
    """What was seen of a server that has a model called `sound`."""

    http: aiohttp.ClientSession
    url: str
    pid: int
    child_max: int
    """Bytes that any other process may have which this one begins, or its processes."""
    before: int = 0
    server: int = 0
    """The most memory that the server had."""
    child: int = 0
    """The most that another process had."""
    others_s: list[float] = field(default_factory=list[float])
    """Of chats with the sound model."""
    failed: Counter[int] = field(default_factory=Counter[int])
    """Of those, what was no answer."""

    @asynccontextmanager
    async def watched(self) -> AsyncGenerator[None]:
        """Chat with the sound model and look at all processes while the block lasts."""
        self.before = resident(self.pid)
        tasks = [asyncio.create_task(each) for each in (self._look(), self._ask())]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _look(self) -> None:
        while True:
            self.server = max(self.server, resident(self.pid))
            others = {*descendants(os.getpid())} - {self.pid}
            self.child = max(self.child, *map(resident, others), 0)
            await asyncio.sleep(WATCH_S)

    async def _ask(self) -> None:
        while True:
            begun = perf_counter()
            status, _ = await chat(self.http, self.url, "sound")
            self.others_s.append(perf_counter() - begun)
            if status != 200:
                self.failed[status] += 1
            await asyncio.sleep(WATCH_S)

    def report(self) -> list[str]:
        """Print what was seen; return what of it is a fault."""
        print(
            f"chats with the sound model: {len(self.others_s)}, {self.failed.total()} failed,"
            f" {median(self.others_s):.3f} s (p50), {percentile(self.others_s, 0.99):.3f} s (p99)"
        )
        print(
            f"memory: server {self.before // MIB} MiB, {self.server // MIB} at most;"
            f" another process {self.child // MIB} MiB at most"
        )
        faults = [f"{count} chats with the sound model: {s}" for s, count in self.failed.items()]
        faults += ["the server grew"] * (self.server - self.before > SERVER_GROWTH_MAX)
        return faults + ["a process was above its limit"] * (self.child > self.child_max)


def resident(pid: int) -> int:
    """Return a process's resident memory; 0 where it has gone."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0
    return pages * 4096


def descendants(pid: int) -> list[int]:
    """Return the processes that a process has begun, and theirs."""
    found: list[int] = []
    for task in islice(Path(f"/proc/{pid}/task").glob("*/children"), 64):
        try:
            own = [*map(int, task.read_text().split())]
        except OSError:
            continue
        for child in own:
            found += [child, *descendants(child)]
    return found


async def chat(
    http: aiohttp.ClientSession, url: str, model: str, words: str = "Hi there"
) -> tuple[int, str]:
    """Return the status of a chat, and what its error says."""
    body = {"model": model, "max_tokens": 2, "messages": [{"role": "user", "content": words}]}
    return await post(http, url + "/v1/chat/completions", body)


async def post(http: aiohttp.ClientSession, url: str, body: Any) -> tuple[int, str]:
    """Return the status of an answer, and what it says if it is an error."""
    async with http.post(url, json=body) as reply:
        answer = await reply.json()
    error = answer.get("error", "")
    return reply.status, error.get("message", "") if isinstance(error, dict) else str(error)


def is_sentence(message: str) -> bool:
    """Whether an error says in one line what is wrong."""
    return bool(message) and "\n" not in message and "Traceback" not in message
