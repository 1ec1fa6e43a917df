"""Clients that leave at any moment, over SSE, WebSocket and plain HTTP: is everything given back?

    python -m benchmarks.reliability.disconnects --count 1000
    python -m benchmarks.reliability.disconnects --count 1000 --replicas 2

Options that it does not know are those of `draftwerk serve`. It starts a server of its own. Half of
the clients crowd before few places, so that most leave while they wait; the other half come three
at a time, with long prompts, and leave during prefill, while tokens come, or with the last. After
every hundred the server has two seconds to be as it was before the first; it exits 1 if it is not.
"""

import argparse
import asyncio
import json
import random
import struct
import sys
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from socket import SO_LINGER, SOL_SOCKET
from time import perf_counter
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from websockets.asyncio.client import connect
from websockets.exceptions import WebSocketException

from benchmarks.support.processes import descriptors, serving_processes
from benchmarks.support.prompts import WORDS
from benchmarks.support.server import draftwerk
from draftwerk_tools.loadtest.server.launcher import Server
from draftwerk_tools.loadtest.server.metrics import fetch_metrics

TRANSPORTS = ("sse", "ws", "plain")
PHASES = ("at once", "before a token", "among tokens", "last token")
LAST = (b'"finish_reason":"', b'"response.output_text.done"')
HEAD = (
    b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\n"
    b"content-type: application/json\r\ncontent-length: %d\r\n\r\n"
)
TOKEN = {"sse": b'"delta":{', "ws": b'"response.output_text.delta"', "plain": b'"content":'}
COUNTS = {
    "blocks": "draftwerk_blocks_used",
    "generations": "draftwerk_generations",
    "running": "vllm:num_requests_running",
    "waiting": "vllm:num_requests_waiting",
    "sockets": "draftwerk_sockets",
    "tasks": "draftwerk_tasks",
}
BATCH = 100
REST_S = 2.0


@dataclass(slots=True)
class Leaver:
    """A client that sends a request and leaves before the end."""

    url: str
    dice: random.Random
    prompt_words: int
    tokens_max: int = 48
    wait_max_s: float = 0.3
    """Longest that one who leaves before a token stays."""
    left: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    """By transport, and by what had come when they left."""

    async def leave(self) -> None:
        """Send one request and go away."""
        transport, phase = self.dice.choice(TRANSPORTS), self.dice.choice(PHASES)
        saw = await (self._socket(phase) if transport == "ws" else self._http(transport, phase))
        self.left[transport, saw] += 1

    def _text(self) -> str:
        return " ".join(self.dice.choices(WORDS, k=self.prompt_words))

    async def _http(self, transport: str, phase: str) -> str:
        body: dict[str, Any] = {
            "messages": [{"role": "user", "content": self._text()}],
            "max_tokens": 2 if phase == "last token" else self.tokens_max,
            "ignore_eos": True,
            "stream": transport == "sse",
        }
        raw = json.dumps(body).encode()
        address = urlsplit(self.url)
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        try:
            writer.write(HEAD % len(raw) + raw)
            return await self._stay(reader.readline(), reader.readline, phase, transport)
        finally:
            if self.dice.random() < 0.5:  # a reset, where the others close properly
                socket = writer.get_extra_info("socket")
                socket.setsockopt(SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _socket(self, phase: str) -> str:
        url = self.url.replace("http", "ws", 1) + "/v1/responses"
        try:
            async with connect(url, compression=None, proxy=None) as ws:
                body = {
                    "type": "response.create",
                    "input": self._text(),
                    "max_output_tokens": 2 if phase == "last token" else self.tokens_max,
                    "ignore_eos": True,
                }
                await ws.send(json.dumps(body))

                async def receive() -> bytes:
                    return await ws.recv(decode=False)

                saw = await self._stay(receive(), receive, phase, "ws")
                if self.dice.random() < 0.5:
                    ws.transport.abort()
                return saw
        except (WebSocketException, OSError):
            return "refused"

    async def _stay(self, first: Any, receive: Any, phase: str, transport: str) -> str:
        """Read until it is time to go; returns what had come by then."""
        if phase == "at once":
            first.close()
            return "at once"
        patience = 60.0
        if phase == "before a token":
            patience = self.dice.uniform(0, self.wait_max_s)
        elif phase == "among tokens" and transport == "plain":
            patience = self.dice.uniform(0, 5 * self.wait_max_s)
        tokens, wanted = 0, self.dice.randrange(1, 12) if phase == "among tokens" else 10**6
        try:
            async with asyncio.timeout(patience):
                line = await first
                if b" 503 " in line:
                    return "refused"
                while tokens < wanted:
                    line = await receive()
                    if not line:
                        break
                    if any(mark in line for mark in LAST):
                        return "last token"
                    tokens += TOKEN[transport] in line
        except TimeoutError:
            pass
        return "among tokens" if tokens else "before a token"


@dataclass(slots=True)
class HangUpTrial:
    """Leavers in batches, with a look at the server after each."""

    server: Server
    http: aiohttp.ClientSession
    dice: random.Random
    baseline: dict[str, int] = field(default_factory=dict[str, int])
    left: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    rests_s: list[float] = field(default_factory=list[float])
    """Per batch, until everything was given back."""

    async def batch(self, count: int, crowd: int, prompt_words: int) -> bool:
        """Run `count` leavers, `crowd` at a time; returns whether the server recovered."""
        leaver = Leaver(self.server.url, self.dice, prompt_words, left=self.left)
        todo = iter(range(count))

        async def client() -> None:
            for _ in todo:
                await leaver.leave()

        await asyncio.gather(*(client() for _ in range(crowd)))
        return await self._at_rest()

    async def counts(self) -> dict[str, int]:
        """Return what must not grow: of the engine, of the event loop, and of the process."""
        page = await fetch_metrics(self.http, self.server.url)
        found = {name: int(page.total(metric)) for name, metric in COUNTS.items()}
        return found | {"descriptors": sum(map(descriptors, serving_processes(self.server.pid)))}

    async def _at_rest(self) -> bool:
        begun = perf_counter()
        while True:
            now = await self.counts()
            excess = {name: now[name] - self.baseline[name] for name in now}
            spent = perf_counter() - begun
            if all(each <= 0 for each in excess.values()):
                self.rests_s.append(spent)
                return True
            if spent > REST_S:
                print(f"not given back after {REST_S:g} s: {excess}")
                return False
            await asyncio.sleep(0.02)


async def run(count: int, seed: int, options: list[str]) -> int:
    """Return the exit code."""
    limits = ("--requests-max", "4", "--queue-max", "64")
    async with draftwerk(*limits, *options) as server, aiohttp.ClientSession() as http:
        trial = HangUpTrial(server, http, random.Random(seed))
        warm = Leaver(server.url, random.Random(0), 20)
        for _ in range(12):
            await warm.leave()
        await asyncio.sleep(REST_S)
        trial.baseline = await trial.counts()
        good, done = True, 0
        while good and done < count:
            size = min(BATCH, count - done)
            crowded = done // BATCH % 2 == 0
            good = await trial.batch(size, 16 if crowded else 3, 20 if crowded else 200)
            done += size
            print(f"{done} left", flush=True)
    report(trial, done)
    return 0 if good else 1


def report(trial: HangUpTrial, done: int) -> None:
    """Print who left when, and how soon nothing was left of them."""
    phases = sorted({phase for _, phase in trial.left})
    print(f"{'':8s}" + "".join(f"{phase:>16s}" for phase in phases))
    for transport in TRANSPORTS:
        row = "".join(f"{trial.left[transport, phase]:16d}" for phase in phases)
        print(f"{transport:8s}{row}")
    print(f"baseline: {trial.baseline}")
    slowest = max(trial.rests_s, default=float("nan"))
    print(f"{done} left; everything given back within {slowest:.2f} s of each batch")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    arguments, options = parser.parse_known_args()
    sys.exit(asyncio.run(run(arguments.count, arguments.seed, options)))


if __name__ == "__main__":
    main()
