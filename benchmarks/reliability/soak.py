"""Mixed load for a long time, with cancels, disconnects and kills: does anything grow?

    python -m benchmarks.reliability.soak --minutes 20

It starts a server of its own and prints, for everything that could leak, its slope over the second
half of the run and its value at rest afterwards.
"""

import argparse
import asyncio
import os
import random
import signal
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from time import perf_counter

import aiohttp

from benchmarks.support.bench import percentile
from benchmarks.support.processes import descriptors, model_process, rss_mb
from benchmarks.support.prompts import WORDS
from benchmarks.support.server import draftwerk
from benchmarks.support.streams import events_of
from draftwerk.machine.host import family
from draftwerk_tools.loadtest.server.metrics import fetch_metrics

GAUGES = {
    "tasks": "draftwerk_tasks",
    "blocks_used": "draftwerk_blocks_used",
    "blocks_cached": "draftwerk_blocks_cached",
    "generations": "draftwerk_generations",
    "restarts": "draftwerk_actor_restarts_total",
}
LAG = "draftwerk_event_loop_lag_seconds_bucket"
LAG_MAX_S = "0.02"
REST_S = 180
"""The audit decodes again what it kept for idle times, and then nothing may be left."""
SAMPLE_S = 2.0


@dataclass(slots=True)
class Soak:
    """One run: what clients saw, and what the server looked like."""

    url: str
    pid: int
    rng: random.Random
    outcomes: Counter[str] = field(default_factory=Counter[str])
    latencies: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])
    """(when, seconds to the first token)."""
    samples: list[dict[str, float]] = field(default_factory=list[dict[str, float]])
    lags: dict[str, float] = field(default_factory=dict[str, float])
    """How often the event loop woke at most so late, since the server began, by seconds."""

    async def client(self, http: aiohttp.ClientSession, until: float) -> None:
        """Send request after request: streamed or not, seeded or greedy; sometimes hang up."""
        while perf_counter() < until:
            try:
                await self._ask(http)
            except (aiohttp.ClientError, TimeoutError) as error:
                self.outcomes[type(error).__name__] += 1
                await asyncio.sleep(0.2)

    async def _ask(self, http: aiohttp.ClientSession) -> None:
        rng = self.rng
        words = " ".join(rng.choices(WORDS, k=rng.choice([5, 20, 120])))
        body = {
            "messages": [{"role": "user", "content": f"Write about: {words}"}],
            "max_tokens": rng.choice([4, 24, 64]),
            "temperature": rng.choice([0.0, 1.0]),
            "stream": rng.random() < 0.7,
            "n": rng.choice([1, 1, 1, 2]),
        }
        patience = rng.uniform(0.0, 1.0) if rng.random() < 0.2 else None
        begun = perf_counter()
        async with http.post(self.url + "/v1/chat/completions", json=body) as response:
            if response.status != 200:
                self.outcomes[str(response.status)] += 1
                return
            first = True
            async for event in events_of(response):
                if first:
                    self.latencies.append((perf_counter(), perf_counter() - begun))
                    first = False
                if event.startswith(b'{"error"'):
                    self.outcomes["error event"] += 1
                if patience is not None and perf_counter() - begun > patience:
                    self.outcomes["hung up"] += 1
                    return
        self.outcomes["finished"] += 1

    async def kill(self, until: float, every_s: float) -> None:
        """Kill the model process now and then."""
        while every_s and perf_counter() + every_s < until:
            await asyncio.sleep(every_s)
            child = model_process(self.pid, "target")
            if child is not None:
                self.outcomes["kills"] += 1
                with suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)

    async def watch(self, http: aiohttp.ClientSession, until: float) -> None:
        while perf_counter() < until:
            await asyncio.sleep(SAMPLE_S)
            with suppress(aiohttp.ClientError, TimeoutError, OSError):
                self.samples.append(await self.sample(http))

    async def rest(self, http: aiohttp.ClientSession) -> dict[str, float]:
        """Return a sample once no block is used, or after `REST_S`."""
        await asyncio.sleep(10)
        found = await self.sample(http)
        for _ in range(int(REST_S / SAMPLE_S)):
            if not found["blocks_used"]:
                break
            await asyncio.sleep(SAMPLE_S)
            found = await self.sample(http)
        return found

    async def sample(self, http: aiohttp.ClientSession) -> dict[str, float]:
        """Return everything that could grow, at this moment."""
        page = await fetch_metrics(http, self.url)
        found = {name: page.total(metric) for name, metric in GAUGES.items()}
        found["rss_mb"] = rss_mb(self.pid)
        found["model_rss_mb"] = sum(map(rss_mb, family(self.pid)[1:]))
        found["descriptors"] = descriptors(self.pid)
        found["at"] = perf_counter()
        self.lags = page.by_label(LAG, "le")
        return found


def slope_per_hour(samples: list[dict[str, float]], name: str) -> float:
    """Return the least-squares slope of a value, per hour."""
    at = [sample["at"] / 3600 for sample in samples]
    values = [sample[name] for sample in samples]
    mean_at, mean = sum(at) / len(at), sum(values) / len(values)
    spread = sum((x - mean_at) ** 2 for x in at)
    return sum((x - mean_at) * (y - mean) for x, y in zip(at, values, strict=True)) / spread


def report(soak: Soak, rest: dict[str, float]) -> None:
    """Print slopes over the second half, the values at rest, and first-token times."""
    late = soak.samples[len(soak.samples) // 2 :]
    names = [name for name in late[0] if name != "at"]
    print(f"{'':14s}{'median':>12s}{'slope/h':>12s}{'p99':>12s}{'at rest':>12s}")
    for name in names:
        values = sorted(sample[name] for sample in late)
        slope, late_p99 = slope_per_hour(late, name), percentile(values, 0.99)
        row = (values[len(values) // 2], slope, late_p99, rest[name])
        print(f"{name:14s}" + "".join(f"{value:12.2f}" for value in row))
    quarters = first_token_p99s(soak, 4)
    print("first token p99 by quarter: " + ", ".join(f"{each:.3f}" for each in quarters) + " s")
    print(dict(soak.outcomes))
    in_time = soak.lags[LAG_MAX_S] / soak.lags["+Inf"]
    print(f"the event loop woke at most {LAG_MAX_S} s late {100 * in_time:.2f} times in a hundred")


def first_token_p99s(soak: Soak, count: int) -> list[float]:
    """Return the p99 of first-token times in each of `count` equal parts of the run."""
    begun, ended = soak.samples[0]["at"], soak.samples[-1]["at"]
    parts: list[list[float]] = [[] for _ in range(count)]
    for at, seconds in soak.latencies:
        place = int(count * (at - begun) / (ended - begun))
        parts[min(max(place, 0), count - 1)].append(seconds)
    return [percentile(part, 0.99) for part in parts]


async def run(arguments: argparse.Namespace) -> None:
    timeout = aiohttp.ClientTimeout(total=120)
    connector = aiohttp.TCPConnector(limit=0)
    async with (
        draftwerk("--audit", "0.01", *arguments.serve) as server,
        aiohttp.ClientSession(timeout=timeout, connector=connector) as http,
    ):
        soak = Soak(server.url, server.pid, random.Random(arguments.seed))
        until = perf_counter() + 60 * arguments.minutes
        async with asyncio.TaskGroup() as tasks:
            for _ in range(arguments.clients):
                tasks.create_task(soak.client(http, until))
            tasks.create_task(soak.kill(until, arguments.kill_every_s))
            tasks.create_task(soak.watch(http, until))
        report(soak, await soak.rest(http))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--clients", type=int, default=12)
    parser.add_argument("--kill-every-s", type=float, default=60, help="0: never")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("serve", nargs="*", help="more arguments of `draftwerk serve`, behind --")
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
