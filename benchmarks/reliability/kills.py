"""Kill or stop model processes under live streams: is every text the same, and how long the pause?

    python -m benchmarks.reliability.kills [--process NAME] [--signal KILL|STOP]

It serves the default model, records the texts of 32 streams undisturbed, and then the texts while
the target's process is killed ten times; `--process` names another, such as `rank 1` of a divided
target, and `--signal STOP` lets a process hang. Where a spare process is kept, each signal
waits until there is one again; with `--hasty` it does not. A text that differs is an error.
`--process grammar` is the process that checks grammars: after each signal a new one must be served.
`--process fork_server` is the one that forks model processes.
"""

import argparse
import asyncio
import random
import signal
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from itertools import cycle, pairwise
from statistics import median
from time import perf_counter

import aiohttp

from benchmarks.reliability.chaos import Chaos, Recovery
from benchmarks.reliability.grammar_chaos import GrammarChaos
from benchmarks.support.server import draftwerk
from benchmarks.support.streams import Stream, run_all, streams
from draftwerk_tools.loadtest.server.metrics import MetricsPage, fetch_metrics

COUNTERS = {
    "restarts": "draftwerk_actor_restarts_total",
    "recoveries": "draftwerk_device_recoveries_total",
    "rounds": "draftwerk_rounds_total",
    "recomputed_tokens": "draftwerk_recomputed_tokens_total",
    "generated_tokens": "vllm:generation_tokens_total",
}
GRAMMAR = "grammar"
SIGNALS = {"KILL": signal.SIGKILL, "STOP": signal.SIGSTOP}


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
    """Serve the model."""
    options = list(arguments.serve)
    if arguments.model:
        options = [arguments.model, *options]
    timeout = aiohttp.ClientTimeout(total=None, sock_read=300)
    connector = aiohttp.TCPConnector(limit=0)
    async with (
        draftwerk(*options) as server,
        aiohttp.ClientSession(timeout=timeout, connector=connector) as http,
    ):
        yield KillServer(http, server.url, server.pid)


async def experiment(arguments: argparse.Namespace) -> None:
    """KillRun the streams twice on one server, compare, and print what was measured."""
    async with started(arguments) as server:
        plain = await server.run(arguments, 0)
        disturbed = await server.run(arguments, arguments.count)
    compare(plain, disturbed)
    report(arguments, plain, disturbed)


def report(arguments: argparse.Namespace, plain: KillRun, disturbed: KillRun) -> None:
    """Print what the signals did."""
    print(
        f"{len(disturbed.streams)} streams, {arguments.count} x SIG{arguments.signal}: "
        "all texts equal"
    )
    print(f"{'at':>8s}{'503 after':>11s}{'ready after':>13s}{'token after':>13s}   seconds")
    for each in disturbed.recoveries:
        unready = "-" if each.unready_s is None else f"{each.unready_s:.3f}"
        print(f"{each.at_s:8.2f}{unready:>11s}{each.ready_s:13.3f}{each.token_s:13.3f}")
    waits = [each.token_s for each in disturbed.recoveries]
    print(f"text again after {median(waits):.3f} s (median; {max(waits):.3f} at most)")
    for name, run in (("undisturbed", plain), ("disturbed", disturbed)):
        print(f"{name}: {run.seconds:.1f} s, no text for {run.longest_pause_s:.3f} s at most")
        print(*(f"{value:12g} {counter}" for counter, value in run.counted.items()), sep="\n")


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__)
    made.add_argument("--model", default="", help="a model to serve; the default one without it")
    made.add_argument("--process", default="target", help="such as spare, grammar or 'rank 1'")
    made.add_argument("--signal", choices=tuple(SIGNALS), default="KILL")
    made.add_argument("--count", type=int, default=10, help="signals")
    made.add_argument("--streams", type=int, default=32)
    made.add_argument("--tokens", type=int, default=192, help="of each stream")
    made.add_argument("--hasty", action="store_true", help="do not wait for a spare process")
    made.add_argument("--seed", type=int, default=1)
    made.add_argument("serve", nargs="*", help="more arguments of `draftwerk serve`, behind --")
    return made


def main() -> None:
    asyncio.run(experiment(parser().parse_args()))


if __name__ == "__main__":
    main()
