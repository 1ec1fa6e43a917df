"""Pauses of texts while long prompts arrive, with the promise of the default and without it.

    python -m benchmarks.reliability.pauses [--dtype int8] [--every 4] [--seconds 15] [--repeats 2]

Two servers stand side by side and are asked in turn: as `draftwerk serve` starts, and with
`--prefer throughput`. Sixteen readers each have one text after the other streamed; a
prompt of 1,000 tokens, each another one, arrives every so many seconds, by chance and whether or
not those before it are answered. A row of the table is a way:

    tok/s       generated for everybody, by the server's count
    pause       between two parts of a reader's text by the kernel's clock, which notes when a part
                came: p50, p99; what this process was late to read them is not in it
    read        the same by when this process read the parts
    TTFT        of the long prompts, p50, p99
    client, %   of a core that asking took

Below it is what the longest hundredth of the pauses went to, and what the default loses.
"""

import argparse
import asyncio
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from statistics import quantiles
from time import perf_counter, process_time

import aiohttp

from benchmarks.support.bench import ResultTable, in_turn, middle, parser, run, show
from benchmarks.support.pause_parts import CoreWaits, device_steps, parts_of, sentence
from benchmarks.support.processes import model_process
from benchmarks.support.server import draftwerk, quiet
from benchmarks.support.timed_streams import TimedText, read_text
from draftwerk.loadtest.server.launcher import Server
from draftwerk.loadtest.server.metrics import fetch_metrics
from draftwerk.loadtest.workloads.words import text_of

WAYS: dict[str, tuple[str, ...]] = {"latency": (), "throughput": ("--prefer", "throughput")}
COMMON = ("--spare", "off", "--debug")
"""A spare loads for many seconds, on the cores that what is measured computes on."""
SETTLE_S = 3.0
"""Of load, before what comes is measured."""
LONGEST = 100
"""Of the pauses, one in so many is put down to its causes."""
ANSWER = 32
"""Tokens that a long prompt is answered with, and words of a reader's prompt."""
SAMPLE_S = 0.005
Times = list[tuple[float, float]]


@dataclass(slots=True)
class PauseRun:
    """What was measured in one turn."""

    tokens_per_s: float
    client: float
    """Of a core, what this process took."""
    pauses: Times
    """When each began and ended, by the kernel's clock."""
    read: Times
    """The same by when the parts were read."""
    firsts_s: list[float]
    """From the arrival of a long prompt to its first token."""
    longest: str
    """What the longest pauses went to."""


@dataclass(slots=True)
class PauseLoad:
    """Readers, and prompts that arrive while they read."""

    server: Server
    http: aiohttp.ClientSession
    given: argparse.Namespace
    seed: str
    texts: list[TimedText] = field(default_factory=list[TimedText])
    """Of readers."""
    arrivals: list[TimedText] = field(default_factory=list[TimedText])

    async def run(self) -> PauseRun:
        """Load the server for a while; what is under way then is cut off."""
        model = model_process(self.server.pid, "target")
        waits = CoreWaits([] if model is None else [model])
        async with asyncio.TaskGroup() as tasks:
            load = [tasks.create_task(self._read(n)) for n in range(self.given.readers)]
            load += [tasks.create_task(self._arrive()), tasks.create_task(watch(waits))]
            await asyncio.sleep(SETTLE_S)
            tokens = await self._generated()
            begun, used = perf_counter(), process_time()
            await asyncio.sleep(self.given.seconds)
            ended, used = perf_counter(), process_time() - used
            tokens = await self._generated() - tokens
            for task in load:
                task.cancel()
        came, read = (
            [each for times_s in all_ for each in pairwise(times_s) if begun <= each[1] <= ended]
            for all_ in ([one.came_s for one in self.texts], [one.read_s for one in self.texts])
        )
        return PauseRun(
            tokens / (ended - begun),
            used / (ended - begun),
            came,
            read,
            [one.came_s[0] - one.begun_s for one in self.arrivals if one.came_s],
            await self._longest(came, waits),
        )

    async def _read(self, reader: int) -> None:
        for turn in range(10**6):
            self.texts.append(text := TimedText())
            await self._ask(text, ANSWER, self.given.tokens, f"{reader}/{turn}")

    async def _arrive(self) -> None:
        rng = Random(self.seed)
        async with asyncio.TaskGroup() as asked:
            for number in range(10**6):
                await asyncio.sleep(rng.expovariate(1.0 / self.given.every))
                self.arrivals.append(text := TimedText())
                asked.create_task(self._ask(text, self.given.prompt, ANSWER, f"long/{number}"))

    async def _ask(self, text: TimedText, words: int, tokens: int, name: str) -> None:
        prompt = text_of(words, f"{self.seed}/{name}")
        body = {"prompt": prompt, "max_tokens": tokens, "temperature": 0.7, "seed": 1}
        await read_text(self.server.url, {**body, "ignore_eos": True}, text)

    async def _generated(self) -> float:
        page = await fetch_metrics(self.http, self.server.url)
        return page.total("vllm:generation_tokens_total")

    async def _longest(self, pauses: Times, waits: CoreWaits) -> str:
        """Return what the longest pauses went to."""
        async with self.http.get(f"{self.server.url}/debug/trace") as reply:
            steps = device_steps((await reply.json())["traceEvents"])
        found = sorted(pauses, key=lambda each: each[1] - each[0])[
            -max(1, len(pauses) // LONGEST) :
        ]
        return sentence([parts_of(*each, steps, waits) for each in found])


async def watch(waits: CoreWaits) -> None:
    """Look at the threads of the model process all the time."""
    while True:
        waits.sample()
        await asyncio.sleep(SAMPLE_S)


async def measure(given: argparse.Namespace) -> dict[str, list[PauseRun]]:
    """Return the runs of each way."""
    async with AsyncExitStack() as stack:
        options = ("--dtype", given.dtype, *COMMON)
        if given.model:
            options = (given.model, *options)
        servers = {
            way: await stack.enter_async_context(draftwerk(*options, *more))
            for way, more in WAYS.items()
        }
        http = await stack.enter_async_context(aiohttp.ClientSession())

        async def measured(way: str, repeat: int) -> PauseRun:
            found = await PauseLoad(servers[way], http, given, f"{given.seed}/{repeat}").run()
            await quiet(http, servers[way].url)
            return found

        return await in_turn([*WAYS], given.repeats, measured)


def percentiles(seconds: Iterable[float], unit_s: float = 1e-3) -> tuple[float, float] | str:
    """Return p50 and p99, or a dash of nothing."""
    known = [each / unit_s for each in seconds]
    if len(known) < 2:
        return "-"
    found = quantiles(known, n=100, method="inclusive")
    return found[49], found[98]


def lengths(times: Iterable[tuple[float, float]]) -> list[float]:
    return [ended - begun for begun, ended in times]


def table(argv: Sequence[str] | None = None) -> ResultTable:
    """Measure; a row for each way, over all of its runs."""
    options = parser(__doc__, model="", dtype="int8", tokens=128, repeats=2, seed=1)
    options.add_argument("--every", type=float, default=4.0, help="seconds between long prompts")
    options.add_argument("--prompt", type=int, default=1000, help="words of a long prompt")
    options.add_argument("--readers", type=int, default=16)
    options.add_argument("--seconds", type=float, default=15.0, help="of each run")
    given = options.parse_args(argv)
    found = ResultTable(["way", "tok/s", "pause, ms", "read, ms", "TTFT, s", "client, %"])
    runs = run(measure, given)
    rates = {way: middle(each.tokens_per_s for each in runs[way]) for way in WAYS}
    for way, rate in rates.items():
        found.add(
            way,
            rate,
            percentiles(one for each in runs[way] for one in lengths(each.pauses)),
            percentiles(one for each in runs[way] for one in lengths(each.read)),
            percentiles((one for each in runs[way] for one in each.firsts_s), 1.0),
            100 * middle(each.client for each in runs[way]),
        )
        found.notes += [f"{way}: {each.longest}" for each in runs[way]]
    loss = 1 - rates["latency"] / rates["throughput"]
    found.notes.append(f"the default has {loss:.1%} fewer tokens a second than throughput mode")
    return found


if __name__ == "__main__":
    show(table)
