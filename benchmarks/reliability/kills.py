"""Kill or stop model processes under live streams: is every text the same, and how long the pause?

    python -m benchmarks.reliability.kills [--process NAME] [--signal KILL|STOP]

It serves the default model, records the texts of 32 streams undisturbed, and then the texts while
the target's process is killed ten times; `--process` names another, `draft` or `rank 1` of a
divided target, and `--signal STOP` lets a process hang. Where a spare process is kept, each signal
waits until there is one again; with `--hasty` it does not. A text that differs is an error.
`--process grammar` is the process that checks grammars: after each signal a new one must be served.
"""

import argparse
import asyncio
import json
import os
import random
import re
import signal
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from itertools import cycle, pairwise
from pathlib import Path
from statistics import median
from time import perf_counter

import aiohttp

from benchmarks.support.server import draftwerk
from benchmarks.support.streams import Stream, run_all, streams
from draftwerk.loadtest.server.launcher import wait_ready
from draftwerk.loadtest.server.metrics import MetricsPage, fetch_metrics
from draftwerk.machine.host import PROC
from draftwerk.model.checkpoint.hub import locate

POLL_S = 0.01
GAP_MAX = 128
"""Chunks of text between two signals, of all streams together."""
COUNTERS = {
    "restarts": "draftwerk_actor_restarts_total",
    "recoveries": "draftwerk_device_recoveries_total",
    "rounds": "draftwerk_rounds_total",
    "recomputed_tokens": "draftwerk_recomputed_tokens_total",
    "generated_tokens": "vllm:generation_tokens_total",
}
GRAMMAR, CHECKER = "grammar", b"draftwerk.model.text.grammar_check"
SIGNALS = {"KILL": signal.SIGKILL, "STOP": signal.SIGSTOP}


@dataclass(slots=True)
class Recovery:
    """What one signal did."""

    at_s: float
    """Since the streams began."""
    unready_s: float | None
    """From the signal until the first 503 of `/ready`; None if there was none."""
    ready_s: float
    """From the signal until `/ready` is 200 again, with the process replaced."""
    token_s: float
    """From the signal until the end of the longest pause of all streams together."""
    texts: int
    """Chunks of text of all streams between the signal and `ready_s`."""


@dataclass(slots=True)
class KillRun:
    """All streams, once or several times."""

    streams: list[Stream]
    seconds: float
    recoveries: list[Recovery]
    counted: dict[str, float]
    """What the server's counters gained."""

    @property
    def longest_pause_s(self) -> float:
        """The longest time in which no stream had any text."""
        moments = sorted(moment for stream in self.streams for moment in stream.arrivals)
        return max(then - before for before, then in pairwise(moments))


@dataclass(slots=True)
class Chaos:
    """Signals to one model process of one server."""

    http: aiohttp.ClientSession
    url: str
    role: str
    what: signal.Signals
    count: int
    rng: random.Random
    hasty: bool = False
    """Whether signals come before there is a spare again."""
    pid: int = 0
    """Of the server."""

    async def play(self, found: list[Stream]) -> list[Recovery]:
        """Send the signals, each at a random moment at which text flows."""
        begun = perf_counter()
        recoveries: list[Recovery] = []
        for _ in range(self.count):
            goal = _arrivals(found) + self.rng.randint(1, GAP_MAX)
            while _arrivals(found) < goal:  # noqa: ASYNC110 - nobody announces it
                await asyncio.sleep(POLL_S)
            while not self.hasty and not await self._has_spare():  # noqa: ASYNC110
                await asyncio.sleep(POLL_S)
            recoveries.append(await self._signal(found, begun))
        return recoveries

    async def _signal(self, found: list[Stream], begun: float) -> Recovery:
        victim = await self._process()
        assert victim is not None, f"there is no {self.role} process"
        sent = perf_counter()
        os.kill(victim, self.what)
        unready: float | None = None
        while await self._process() in (victim, None) or not await self._up():
            if unready is None and not await self._ready():
                unready = perf_counter() - sent
            await asyncio.sleep(POLL_S)
        await wait_ready(self.url, poll_s=POLL_S)
        ready = perf_counter()
        moments: list[float] = []
        while not moments or moments[-1] < ready:
            await asyncio.sleep(POLL_S)
            moments = sorted(each for one in found for each in one.arrivals if each > sent)
        token_s, texts = flows_again(sent, moments) - sent, sum(each < ready for each in moments)
        return Recovery(sent - begun, unready, ready - sent, token_s, texts)

    async def _process(self) -> int | None:
        """Return the id of the process that works, as the server tells it."""
        page = await fetch_metrics(self.http, self.url)
        found = page.by_label("draftwerk_device_process", "device").get(self.role)
        return None if found is None else int(found)

    async def _has_spare(self) -> bool:
        page = await fetch_metrics(self.http, self.url)
        return page.by_label("draftwerk_device_up", "device").get("spare", 1) == 1

    async def _ready(self) -> bool:
        with suppress(aiohttp.ClientError):
            async with self.http.get(self.url + "/ready") as response:
                return response.status == 200
        return False

    async def _up(self) -> bool:
        page = await fetch_metrics(self.http, self.url)
        return page.total("draftwerk_device_up", device=self.role) == 1


@dataclass(slots=True)
class GrammarChaos(Chaos):
    """Signals to the process that checks grammars, each followed by a grammar that is new."""

    async def play(self, found: list[Stream]) -> list[Recovery]:
        if self.count:
            await self._ask("first")
        return await Chaos.play(self, found)

    async def _signal(self, found: list[Stream], begun: float) -> Recovery:
        victim = await self._process()
        assert victim is not None, "no process checks grammars"
        sent = perf_counter()
        os.kill(victim, self.what)
        await self._ask(f"{sent}")
        served = perf_counter()
        assert await self._process() not in (victim, None)
        moments = sorted(each for one in found for each in one.arrivals if each > sent)
        token_s, texts = flows_again(sent, moments) - sent, sum(each < served for each in moments)
        return Recovery(sent - begun, None, served - sent, token_s, texts)

    async def _ask(self, text: str) -> None:
        wanted = {"type": "regex", "pattern": re.escape(f"a {text}")}
        body = {"messages": [{"role": "user", "content": "?"}], "response_format": wanted}
        async with self.http.post(self.url + "/v1/chat/completions", json=body) as response:
            said = await response.text()
            assert response.status == 200, said
        assert json.loads(said)["choices"][0]["message"]["content"] == f"a {text}"

    async def _process(self) -> int | None:
        for folder in PROC.glob("[0-9]*"):
            with suppress(OSError):
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                if parent == self.pid and CHECKER in (folder / "cmdline").read_bytes():
                    return int(folder.name)
        return None


def flows_again(sent: float, moments: list[float]) -> float:
    """Return the end of the longest pause after a signal, of the sorted moments of all texts.

    A text that was on its way at the signal still arrives: it does not end the pause.
    """
    return max(pairwise([sent, *moments]), key=lambda pause: pause[1] - pause[0])[1]


def _arrivals(found: list[Stream]) -> int:
    return sum(len(stream.arrivals) for stream in found)


async def run_streams(
    http: aiohttp.ClientSession, url: str, make: Callable[[], list[Stream]], chaos: Chaos
) -> KillRun:
    """KillRun all streams, again and again until all that is to happen to them has happened."""
    before = await fetch_metrics(http, url)
    begun = perf_counter()
    found: list[Stream] = []
    signals = asyncio.create_task(chaos.play(found))
    while not found or not signals.done():
        more = make()
        found += more
        await run_all(http, url, more)
    seconds = perf_counter() - begun
    recoveries = await signals
    return KillRun(found, seconds, recoveries, _gained(before, await fetch_metrics(http, url)))


def _gained(before: MetricsPage, after: MetricsPage) -> dict[str, float]:
    return {name: after.total(metric) - before.total(metric) for name, metric in COUNTERS.items()}


def compare(undisturbed: KillRun, disturbed: KillRun) -> None:
    """Raise AssertionError unless every stream ended, with the same texts."""
    for plain, other in zip(cycle(undisturbed.streams), disturbed.streams, strict=False):
        assert plain.texts, f"{plain.name} said nothing: {plain.ending}"
        assert other.ending == plain.ending, f"{other.name} ended with {other.ending}"
        assert other.texts == plain.texts, f"{other.name}: {plain.texts} became {other.texts}"


@dataclass(slots=True, frozen=True)
class KillServer:
    """A server in a process of its own, and a client."""

    http: aiohttp.ClientSession
    url: str
    pid: int

    async def run(self, arguments: argparse.Namespace, count: int) -> KillRun:
        """KillRun the streams while `count` signals are sent."""
        rng, what = random.Random(arguments.seed), SIGNALS[arguments.signal]
        kind = GrammarChaos if arguments.process == GRAMMAR else Chaos
        chaos = kind(
            self.http, self.url, arguments.process, what, count, rng, arguments.hasty, self.pid
        )
        make = partial(streams, arguments.streams, arguments.tokens)
        return await run_streams(self.http, self.url, make, chaos)


@asynccontextmanager
async def started(arguments: argparse.Namespace) -> AsyncGenerator[KillServer]:
    """Serve the model, with a draft model if its process is the one to be killed."""
    options = list(arguments.serve)
    if arguments.model:
        options = [arguments.model, *options]
    if arguments.process == "draft":
        draft = arguments.draft or str(locate(arguments.model or None).directory)
        options += ["--draft", draft]
    timeout = aiohttp.ClientTimeout(total=None, sock_read=300)
    connector = aiohttp.TCPConnector(limit=0)
    async with (
        draftwerk(*options) as server,
        aiohttp.ClientSession(timeout=timeout, connector=connector) as http,
    ):
        yield KillServer(http, server.url, server.pid)


async def experiment(arguments: argparse.Namespace) -> dict[str, object]:
    """KillRun the streams twice on one server and compare; returns what was measured."""
    async with started(arguments) as server:
        plain = await server.run(arguments, 0)
        disturbed = await server.run(arguments, arguments.count)
    compare(plain, disturbed)
    return report(arguments, plain, disturbed)


def report(arguments: argparse.Namespace, plain: KillRun, disturbed: KillRun) -> dict[str, object]:
    """Print and return what the signals did."""
    print(
        f"{len(disturbed.streams)} streams, {arguments.count} x SIG{arguments.signal}: "
        "all texts equal"
    )
    print(f"{'at':>8s}{'503 after':>11s}{'ready after':>13s}{'token after':>13s}   seconds")
    for each in disturbed.recoveries:
        unready = "-" if each.unready_s is None else f"{each.unready_s:.3f}"
        print(f"{each.at_s:8.2f}{unready:>11s}{each.ready_s:13.3f}{each.token_s:13.3f}")
    found: dict[str, object] = {
        "streams_at_once": len(plain.streams),
        "streams": len(disturbed.streams),
        "process": arguments.process,
        "signal": arguments.signal,
        "ready_s_median": median(each.ready_s for each in disturbed.recoveries),
        "token_s_median": median(each.token_s for each in disturbed.recoveries),
        "token_s_max": max(each.token_s for each in disturbed.recoveries),
        "longest_pause_s": {
            "undisturbed": plain.longest_pause_s,
            "disturbed": disturbed.longest_pause_s,
        },
        "seconds": {"undisturbed": plain.seconds, "disturbed": disturbed.seconds},
        "undisturbed": plain.counted,
        "disturbed": disturbed.counted,
    }
    print(json.dumps(found, indent=1))
    return {**found, "recoveries": [asdict(each) for each in disturbed.recoveries]}


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__)
    made.add_argument("--model", default="", help="a model to serve; the default one without it")
    made.add_argument(
        "--process", default="target", help="target, draft, grammar, or such as 'rank 1'"
    )
    made.add_argument("--draft", default="", help="the draft model; the model itself without it")
    made.add_argument("--signal", choices=tuple(SIGNALS), default="KILL")
    made.add_argument("--count", type=int, default=10, help="signals")
    made.add_argument("--streams", type=int, default=32)
    made.add_argument("--tokens", type=int, default=192, help="of each stream")
    made.add_argument("--hasty", action="store_true", help="do not wait for a spare process")
    made.add_argument("--seed", type=int, default=1)
    made.add_argument("--output", type=Path)
    made.add_argument("serve", nargs="*", help="more arguments of `draftwerk serve`, behind --")
    return made


def main() -> None:
    arguments = parser().parse_args()
    found = asyncio.run(experiment(arguments))
    if arguments.output:
        arguments.output.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
