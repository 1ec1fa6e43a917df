"""Short requests beside long prompts, as agents send them: who waits how long, on which server?

    python -m benchmarks.speed.agents
    python -m benchmarks.speed.agents --server 'before=PYTHON -P -m draftwerk serve --port {port}'
    python -m benchmarks.speed.agents --llama LLAMA-SERVER --weights FILE.gguf

It prints for each server the first token of a chat alone, of a long prompt alone, and of both when
the chat comes a second after the long prompt; and the pause that one in a hundred of texts exceeds
that are decoded meanwhile. Then a mix of less than the first server can do: chats at half of what
it does of them in a closed loop, and long prompts as often as takes 0.4 of its time; with `--every`
as often as that says. Each server is asked the same, one after the other, and starts with an empty
cache; PYTHON may be that of another checkout (`-P`: not of this one). `--llama` is llama.cpp's
server, or a folder of virtual environments to build it in; `--context` must hold the long prompt,
with its answer.
"""

import argparse
import asyncio
import json
import os
import random
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median
from time import perf_counter

import aiohttp

from benchmarks.support.bench import ResultTable, parser, percentile, run, show
from benchmarks.support.llama_cpp import LlamaCpp
from benchmarks.support.prompts import WORDS
from draftwerk.machine.host import die_with_parent
from draftwerk_tools.loadtest.client.http.sse import sse_events
from draftwerk_tools.loadtest.server.launcher import free_port, serving

USERS = 16
"""Chats at once in the closed loop, and texts that are decoded beside a long prompt."""
LONG_SHARE = 0.4
"""The part of its time in which the first server reads long prompts, in the mix."""


@dataclass(slots=True)
class TimedRequest:
    """A request, and when its text came; seconds on the performance counter."""

    prompt: int
    answer: int
    begun_s: float = 0.0
    times_s: list[float] = field(default_factory=list[float])

    @property
    def first_s(self) -> float:
        return self.times_s[0] - self.begun_s


@dataclass(slots=True)
class TimedClient:
    """Asks one server; every prompt is another one."""

    http: aiohttp.ClientSession
    url: str
    model: str
    dice: random.Random
    done: list[TimedRequest] = field(default_factory=list[TimedRequest])

    async def ask(self, prompt: int, answer: int) -> TimedRequest:
        """Send a request of so many words, and read its text. Raises AssertionError."""
        asked = TimedRequest(prompt, answer)
        body = {
            "model": self.model,
            "prompt": " ".join(self.dice.choices(WORDS, k=prompt)),
            **{"max_tokens": answer, "ignore_eos": True, "stream": True, "temperature": 0},
        }
        asked.begun_s = perf_counter()
        async with self.http.post(self.url + "/v1/completions", json=body) as response:
            assert response.status == 200, await response.text()
            async for data in sse_events(response.content.iter_any()):
                if data != b"[DONE]" and any(
                    choice.get("text") for choice in json.loads(data).get("choices", ())
                ):
                    asked.times_s.append(perf_counter())
        assert asked.times_s, "no text"
        self.done.append(asked)
        return asked

    async def ask_at(self, at_s: float, prompt: int, answer: int) -> TimedRequest:
        await asyncio.sleep(max(0.0, at_s - perf_counter()))
        return await self.ask(prompt, answer)

    async def closed(self, seconds: float, prompt: int, answer: int) -> float:
        """Return the requests a second of users who each send one after the other."""
        begun, before = perf_counter(), len(self.done)

        async def user() -> None:
            while perf_counter() - begun < seconds:
                await self.ask(prompt, answer)

        await asyncio.gather(*(user() for _ in range(USERS)))
        return (len(self.done) - before) / (perf_counter() - begun)


async def behind_a_long_prompt(client: TimedClient, given: argparse.Namespace) -> list[float]:
    """Return the first token of a chat alone, of a long prompt alone, of both when the chat comes
    second, as medians; and the 99th percentile of pauses of texts beside a long prompt, all in
    milliseconds."""
    await client.ask(10, 4)
    times: list[tuple[float, ...]] = []
    for _ in range(given.repeats):
        chat, long = await client.ask(10, 8), await client.ask(given.long, 1)
        at_s = perf_counter()
        both = client.ask_at(at_s, given.long, 1), client.ask_at(at_s + 1.0, 10, 8)
        second, first = (await asyncio.gather(*both))[::-1]
        times.append((chat.first_s, long.first_s, second.first_s, first.first_s))
    at_s = perf_counter()
    readers = (client.ask_at(at_s, 10, given.read) for _ in range(USERS))
    *texts, _ = await asyncio.gather(*readers, client.ask_at(at_s + 1.0, given.long, 1))
    pauses = [then - before for text in texts for before, then in pairwise(text.times_s)]
    return [
        1e3 * each for each in (*map(median, zip(*times, strict=True)), percentile(pauses, 0.99))
    ]


@dataclass(slots=True, frozen=True)
class MixRates:
    """How often the requests of the mix come."""

    chats: float
    """A second."""
    every_s: float
    """From one long prompt to the next."""


async def mix_rates(client: TimedClient, given: argparse.Namespace) -> MixRates:
    """Return the rates that are less than a server can do, as far as they are not given."""
    chats, every_s = given.rate, given.every
    if not every_s:
        every_s = (await client.ask(given.long, 1)).first_s / LONG_SHARE
    if not chats:
        await client.closed(3, given.chat, given.tokens)
        chats = 0.5 * await client.closed(given.seconds / 3, given.chat, given.tokens)
    return MixRates(chats, every_s)


async def mixed(client: TimedClient, given: argparse.Namespace, rates: MixRates) -> list[float]:
    """Return what clients see of a mix: chats' first tokens p50 and p95, that of long prompts, and
    tokens a second, of prompts too, until the last answer."""
    dice, begun_s, client.done = random.Random(given.seed), perf_counter(), []
    asking = [
        client.ask_at(begun_s + rates.every_s * number, given.long, given.tokens)
        for number in range(max(1, round(given.seconds / rates.every_s)))
    ]
    at_s = dice.expovariate(rates.chats)
    while at_s < given.seconds:
        asking.append(client.ask_at(begun_s + at_s, given.chat, given.tokens))
        at_s += dice.expovariate(rates.chats)
    asked = await asyncio.gather(*asking)
    chats = [each.first_s for each in asked if each.prompt == given.chat]
    longs = [each.first_s for each in asked if each.prompt != given.chat]
    tokens = sum(each.prompt + each.answer for each in asked) / (perf_counter() - begun_s)
    return [*(1e3 * percentile(chats, part) for part in (0.5, 0.95)), 1e3 * median(longs), tokens]


def llama_server(path: Path, weights: Path) -> list[str]:
    """Return the beginning of a command of llama.cpp's server, which is built if need be."""
    if path.is_file():
        return [str(path), "-m", str(weights), "--port", "{port}"]
    build = LlamaCpp(path)
    build.install()
    return build.command(weights, 1)[: -len(("-t", "", "--parallel", "", "-c", ""))]


def servers(given: argparse.Namespace) -> dict[str, list[str]]:
    """Return the commands of the servers, by name."""
    own = f"{shlex.quote(sys.executable)} -m draftwerk serve --port {{port}}"
    if given.weights:
        own += f" {shlex.quote(str(given.weights))}"
    texts = [*([] if given.without else [f"draftwerk={own}"]), *given.server]
    commands = {
        name: shlex.split(text) for name, _, text in (each.partition("=") for each in texts)
    }
    if given.llama:
        assert given.weights, "llama.cpp's server needs --weights"
        options = ["-t", str(os.cpu_count() or 1), "--parallel", str(2 * USERS)]
        options += ["-c", str(2 * USERS * given.context)]
        commands["llama.cpp"] = [*llama_server(given.llama, given.weights), *options]
    return commands


async def measure(given: argparse.Namespace) -> dict[str, list[float]]:
    """Return the figures of each server: those of the first part, then those of the mix."""
    found: dict[str, list[float]] = {}
    rates: MixRates | None = None
    for name, command in servers(given).items():
        port = free_port()
        words = [word.replace("{port}", str(port)) for word in command]
        url = f"http://127.0.0.1:{port}"
        async with (
            serving(words, url, prepare=die_with_parent) as server,
            aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(1800),
                # llama.cpp's server ends a connection that was idle, as the next request comes.
                connector=aiohttp.TCPConnector(force_close=True, limit=0),
            ) as http,
        ):
            async with http.get(server.url + "/v1/models") as reply:
                model = (await reply.json())["data"][0]["id"]
            client = TimedClient(http, server.url, model, random.Random(given.seed))
            figures = [] if given.only == "mix" else await behind_a_long_prompt(client, given)
            if given.only != "behind":
                rates = rates or await mix_rates(client, given)
                figures += [rates.chats, rates.every_s, *await mixed(client, given, rates)]
            found[name] = figures
            print(name, *(f"{each:.4g}" for each in figures), file=sys.stderr, flush=True)
    return found


BEHIND = (
    "chat alone, first token, ms",
    "long prompt alone, first token, ms",
    "chat a second behind it, first token, ms",
    "long prompt with that chat, first token, ms",
    "pause of 16 texts beside it, p99, ms",
)
MIX = (
    "chats a second in the mix",
    "seconds between its long prompts",
    "chats' first token p50, ms",
    "chats' first token p95, ms",
    "long prompts' first token p50, ms",
    "tokens a second",
)


def table(argv: Sequence[str] | None = None) -> ResultTable:
    """Measure; a column for each server."""
    options = parser(__doc__, tokens=64, repeats=3, seed=1)
    options.add_argument("--long", type=int, default=7000, help="words of a long prompt")
    options.add_argument("--chat", type=int, default=200, help="words of a chat in the mix")
    options.add_argument("--read", type=int, default=400, help="tokens of texts beside it")
    options.add_argument("--seconds", type=float, default=60.0, help="of the mix")
    options.add_argument("--rate", type=float, default=0.0, help="chats a second; 0: half of what")
    options.add_argument("--every", type=float, default=0.0, help="seconds from a long prompt on")
    options.add_argument("--without", action="store_true", help="the server of this checkout")
    options.add_argument("--context", type=int, default=8192, help="of llama.cpp's server")
    options.add_argument("--only", choices=["behind", "mix"])
    options.add_argument("--server", action="append", default=[], help="NAME=COMMAND with {port}")
    options.add_argument("--llama", type=Path, help="llama.cpp's server, or a folder to build in")
    options.add_argument("--weights", type=Path, help="GGUF file; the default model without it")
    given = options.parse_args(argv)
    figures = run(measure, given)
    found = ResultTable(["", *figures])
    names = (() if given.only == "mix" else BEHIND) + (() if given.only == "behind" else MIX)
    for name, values in zip(names, zip(*figures.values(), strict=True), strict=True):
        found.add(name, *values)
    return found


if __name__ == "__main__":
    show(table)
