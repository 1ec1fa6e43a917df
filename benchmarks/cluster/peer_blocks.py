"""What it saves to fetch a prefix from another server, and what it costs if that server dies.

    python -m benchmarks.cluster.peer_blocks [--prefix 2000] [--repeats 5]
    python -m benchmarks.cluster.peer_blocks --kills 20

One server computes a prefix, and another one fetches its blocks by name for a prompt that begins
with it, or computes a prefix that nobody has: the times to the first token, in turn. With `--kills`
the first server is killed at a random moment of each fetch, and the text must be the one it gave.
"""

import argparse
import asyncio
import os
import random
import signal
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

import aiohttp

from benchmarks.support.bench import ResultTable, middle, parser, show
from draftwerk.loadtest.server.launcher import Server, free_port, says_ready, serving
from draftwerk.loadtest.server.metrics import fetch_metrics
from draftwerk.machine.host import die_with_parent

TOLD_S = 0.5
"""For a peer to have said what it has computed."""
TAIL = 24
"""Tokens of a prompt behind its prefix."""
TOKEN_IDS = range(1000, 20_000)
COUNTERS = ("hits", "misses", "refused")


@dataclass(slots=True)
class PeerServer:
    """One of the servers."""

    http: aiohttp.ClientSession
    server: Server

    async def ask(self, prompt: list[int], tokens: int = 1) -> tuple[float, str]:
        """Return the milliseconds to a reply of so many tokens, and its text."""
        body = {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
        begun = perf_counter()
        async with self.http.post(f"{self.server.url}/v1/completions", json=body) as response:
            assert response.status == 200, await response.text()
            reply = await response.json()
        return 1e3 * (perf_counter() - begun), reply["choices"][0]["text"]

    async def counters(self) -> dict[str, float]:
        """Return what the server has counted of blocks from its peer."""
        page = await fetch_metrics(self.http, self.server.url)
        return {name: page.total(f"draftwerk_kv_store_{name}_total") for name in COUNTERS}


@dataclass(slots=True)
class PeerBench:
    """What both servers are started with."""

    given: argparse.Namespace
    http: aiohttp.ClientSession
    key: Path
    port: int
    """Where the first one hands blocks over."""

    @asynccontextmanager
    async def first(self) -> AsyncGenerator[PeerServer]:
        """Serve what hands blocks over."""
        async with self._started("--kv-listen", f"127.0.0.1:{self.port}") as server:
            yield server

    @asynccontextmanager
    async def second(self) -> AsyncGenerator[PeerServer]:
        """Serve what fetches them."""
        async with self._started("--kv-peers", f"127.0.0.1:{self.port}") as server:
            yield server

    @asynccontextmanager
    async def _started(self, *options: str) -> AsyncGenerator[PeerServer]:
        given, port = self.given, free_port()
        model = (given.model,) if given.model else ()
        words = ("--port", str(port), "--dtype", given.dtype, "--spare", "off")
        command = (sys.executable, "-m", "draftwerk", "serve", *model, *words)
        command = (*command, "--kv-key", str(self.key), *options)
        url = f"http://127.0.0.1:{port}"
        async with serving(command, url, ready=says_ready, prepare=die_with_parent) as server:
            yield PeerServer(self.http, server)

    def prompts(self) -> AsyncGenerator[list[int]]:
        """Return prompts that begin in ways of their own."""
        return random_prompts(random.Random(self.given.seed), self.given.prefix + TAIL)


async def random_prompts(rng: random.Random, length: int) -> AsyncGenerator[list[int]]:
    """Yield prompts of random tokens."""
    while True:
        yield rng.choices(TOKEN_IDS, k=length)


async def first_tokens(bench: PeerBench) -> ResultTable:
    """Measure the time to the first token with a prefix that is computed, fetched, or here."""
    found = ResultTable(["the prefix is", "first token p50, ms", "of computing"])
    times: dict[str, list[float]] = {"computed": [], "fetched": [], "here": []}
    prompts = bench.prompts()
    async with bench.first() as first, bench.second() as second:
        for number in range(bench.given.repeats + 1):
            shared, fresh = await anext(prompts), await anext(prompts)
            _, plain = await first.ask(shared[: bench.given.prefix])
            await asyncio.sleep(TOLD_S)
            measured = {
                "computed": (await second.ask(fresh))[0],
                "fetched": (await second.ask(shared))[0],
                "here": (await second.ask(shared))[0],
            }
            assert (await second.ask(shared[: bench.given.prefix]))[1] == plain
            for name in times if number else ():  # the first of each is a warm-up
                times[name].append(measured[name])
        counted = await second.counters()
    for name, each in times.items():
        found.add(name, middle(each), middle(each) / middle(times["computed"]))
    found.notes.append(f"blocks from the peer: {counted}")
    return found


async def kills(bench: PeerBench) -> ResultTable:
    """Kill the server that hands blocks over in the midst of each fetch; compare the texts."""
    found = ResultTable(["kill", "after, ms", "reply, ms", "blocks", "missed", "refused"])
    rng, prompts, amid = random.Random(bench.given.seed), bench.prompts(), 0
    async with bench.second() as second:
        for number in range(bench.given.kills):
            prompt, before = await anext(prompts), await second.counters()
            async with bench.first() as first:
                _, plain = await first.ask(prompt, bench.given.tokens)
                await asyncio.sleep(2 * TOLD_S + 1.0)  # the second one looks for it every second
                asked = asyncio.create_task(second.ask(prompt, bench.given.tokens))
                delay_s = rng.uniform(0.0, bench.given.within_ms / 1e3)
                await asyncio.sleep(delay_s)
                os.kill(first.server.pid, signal.SIGKILL)
                took_ms, text = await asked
            assert text == plain, f"kill {number}: {plain!r} became {text!r}"
            now = await second.counters()
            gained = [now[name] - before[name] for name in COUNTERS]
            amid += bool(gained[0] and gained[1])
            found.add(number + 1, 1e3 * delay_s, took_ms, *map(int, gained))
    found.notes.append(f"{bench.given.kills} kills, {amid} amid a fetch: every text is the same")
    return found


async def measure(given: argparse.Namespace) -> ResultTable:
    """Run the servers with a secret of their own."""
    with TemporaryDirectory() as folder:
        key = Path(folder) / "key"
        key.write_bytes(random.SystemRandom().randbytes(32))
        async with aiohttp.ClientSession() as http:
            bench = PeerBench(given, http, key, free_port())
            return await (kills(bench) if given.kills else first_tokens(bench))


def table(argv: Sequence[str] | None = None) -> ResultTable:
    """Measure; a row for each way to a prefix, or for each kill."""
    options = parser(__doc__, model="", dtype="int8", tokens=12, repeats=5, seed=1)
    options.add_argument("--prefix", type=int, default=2000, help="tokens")
    options.add_argument("--kills", type=int, default=0, help="of the server with the blocks")
    options.add_argument("--within-ms", type=float, default=60.0, help="a kill's latest moment")
    return asyncio.run(measure(options.parse_args(argv)))


if __name__ == "__main__":
    show(table)
