"""Kill or stop model processes under live streams: is every text the same, and how long the pause?

`python -m benchmarks.kills` serves the default model, records what 32 streams say undisturbed, and
then what they say while the target's process is killed ten times; `--process draft` kills the draft
model's, and `--signal STOP` lets a process hang. A text that differs is an error.
"""

import argparse
import asyncio
import json
import os
import random
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from itertools import cycle, pairwise
from pathlib import Path
from statistics import median
from time import perf_counter

import aiohttp

from benchmarks.processes import metrics, model_process, serving
from benchmarks.streams import TimedStream, run_all, streams, wait_ready
from draftwerk.model.checkpoint.hub import locate

POLL_S = 0.01
GAP_MAX = 128
"""Chunks of text between two signals, of all streams together."""
SIGNALS = {"KILL": signal.SIGKILL, "STOP": signal.SIGSTOP}


@dataclass(slots=True)
class Recovery:
    """What one signal did."""

    at_s: float
    """Since the streams began."""
    unready_s: float | None
    """From the signal until the first 503 of `/ready`; None if there was none."""
    ready_s: float
    """From the signal until `/ready` said yes again, with the process replaced."""
    token_s: float
    """From the signal until the next text of any stream."""


@dataclass(slots=True)
class KillRun:
    """All streams, once or several times."""

    streams: list[TimedStream]
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
    server: int
    role: str
    what: signal.Signals
    count: int
    rng: random.Random

    async def play(self, found: list[TimedStream]) -> list[Recovery]:
        """Send the signals, each at a random moment at which text flows."""
        begun = perf_counter()
        recoveries: list[Recovery] = []
        for _ in range(self.count):
            goal = _arrivals(found) + self.rng.randint(1, GAP_MAX)
            while _arrivals(found) < goal:  # noqa: ASYNC110 - nobody announces it
                await asyncio.sleep(POLL_S)
            recoveries.append(await self._signal(found, begun))
        return recoveries

    async def _signal(self, found: list[TimedStream], begun: float) -> Recovery:
        victim = model_process(self.server, self.role)
        assert victim is not None, f"there is no {self.role} process"
        sent = perf_counter()
        os.kill(victim, self.what)
        unready: float | None = None
        replaced: float | None = None
        while replaced is None or not await self._up():
            if unready is None and not await self._ready():
                unready = perf_counter() - sent
            if replaced is None and model_process(self.server, self.role) not in (victim, None):
                replaced = perf_counter()
            await asyncio.sleep(POLL_S)
        await wait_ready(self.http, self.url)
        ready = perf_counter() - sent
        # The target's new texts come from its next process; without a draft they just go on.
        since = replaced if self.role == "target" else sent
        texts: list[float] = []
        while not texts:
            await asyncio.sleep(POLL_S)
            texts = [moment for stream in found for moment in stream.arrivals if moment > since]
        return Recovery(sent - begun, unready, ready, min(texts) - sent)

    async def _ready(self) -> bool:
        with suppress(aiohttp.ClientError):
            async with self.http.get(self.url + "/ready") as response:
                return response.status == 200
        return False

    async def _up(self) -> bool:
        return (await metrics(self.http, self.url))[f"draftwerk_device_up{{{self.role}}}"] == 1


def _arrivals(found: list[TimedStream]) -> int:
    return sum(len(stream.arrivals) for stream in found)


async def run_streams(
    http: aiohttp.ClientSession, url: str, make: Callable[[], list[TimedStream]], chaos: Chaos
) -> KillRun:
    """Run all streams, again and again until all that is to happen to them has happened."""
    before = await metrics(http, url)
    begun = perf_counter()
    found: list[TimedStream] = []
    signals = asyncio.create_task(chaos.play(found))
    while not found or not signals.done():
        more = make()
        found += more
        await run_all(http, url, more)
    seconds = perf_counter() - begun
    recoveries = await signals
    after = await metrics(http, url)
    names = {
        "restarts": "draftwerk_actor_restarts_total",
        "rounds": "draftwerk_rounds_total",
        "recomputed_tokens": "draftwerk_recomputed_tokens_total",
        "generated_tokens": "vllm:generation_tokens_total{" + _model(after) + "}",
    }
    counted = {name: after[metric] - before.get(metric, 0) for name, metric in names.items()}
    return KillRun(found, seconds, recoveries, counted)


def _model(found: dict[str, float]) -> str:
    name = next(name for name in found if name.startswith("vllm:generation_tokens_total"))
    return name.partition("{")[2].rstrip("}")


def compare(undisturbed: KillRun, disturbed: KillRun) -> None:
    """Raise AssertionError unless every stream ended, with the same texts."""
    for plain, other in zip(cycle(undisturbed.streams), disturbed.streams, strict=False):
        assert plain.texts, f"{plain.name} said nothing: {plain.ending}"
        assert other.ending == plain.ending, f"{other.name} ended with {other.ending}"
        assert other.texts == plain.texts, f"{other.name}: {plain.texts} became {other.texts}"


async def experiment(arguments: argparse.Namespace) -> dict[str, object]:
    """Run the streams twice on one server and compare; returns what was measured."""
    options = list(arguments.serve)
    if arguments.model:
        options = [arguments.model, *options]
    if arguments.process == "draft":
        draft = arguments.draft or str(locate(arguments.model or None).directory)
        options += ["--draft", draft]
    what = SIGNALS[arguments.signal]
    timeout = aiohttp.ClientTimeout(total=None, sock_read=300)
    connector = aiohttp.TCPConnector(limit=0)
    async with (
        serving(options) as (url, server),
        aiohttp.ClientSession(timeout=timeout, connector=connector) as http,
    ):
        passes: list[KillRun] = []
        for count in (0, arguments.count):
            rng = random.Random(arguments.seed)
            chaos = Chaos(http, url, server, arguments.process, what, count, rng)
            make = partial(streams, arguments.streams, arguments.tokens)
            passes.append(await run_streams(http, url, make, chaos))
    compare(*passes)
    return report(arguments, *passes)


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
    made.add_argument("--process", choices=("target", "draft"), default="target")
    made.add_argument("--draft", default="", help="the draft model; the model itself without it")
    made.add_argument("--signal", choices=tuple(SIGNALS), default="KILL")
    made.add_argument("--count", type=int, default=10, help="signals")
    made.add_argument("--streams", type=int, default=32)
    made.add_argument("--tokens", type=int, default=192, help="of each stream")
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
