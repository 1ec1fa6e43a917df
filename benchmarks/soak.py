"""Mixed load for a long time, with cancels, disconnects and kills: does anything grow?

`python -m benchmarks.soak --minutes 20` starts a server of its own and prints, for everything that
could leak, its slope over the second half of the run and its value at rest afterwards.
"""

import argparse
import asyncio
import json
import os
import random
import signal
import socket
import sys
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

WORDS = [
    "river",
    "stone",
    "light",
    "garden",
    "winter",
    "engine",
    "copper",
    "letter",
    "window",
    "market",
]
GAUGES = {
    "tasks": "draftwerk_tasks",
    "blocks_used": "draftwerk_blocks_used",
    "generations": "draftwerk_generations",
    "restarts": "draftwerk_actor_restarts_total",
    "loop_lag_ms": "draftwerk_loop_lag_seconds",
}
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

    async def client(self, http: aiohttp.ClientSession, until: float) -> None:
        """Ask again and again: streamed or not, seeded or greedy; sometimes hang up."""
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
            async for line in response.content:
                if first and line.strip():
                    self.latencies.append((perf_counter(), perf_counter() - begun))
                    first = False
                if line.startswith(b'data: {"error"'):
                    self.outcomes["error event"] += 1
                if patience is not None and perf_counter() - begun > patience:
                    self.outcomes["hung up"] += 1
                    return
        self.outcomes["finished"] += 1

    async def kill(self, until: float, every_s: float) -> None:
        """Kill the model process now and then."""
        while every_s and perf_counter() + every_s < until:
            await asyncio.sleep(every_s)
            for child in children(self.pid):
                self.outcomes["kills"] += 1
                with suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)

    async def watch(self, http: aiohttp.ClientSession, until: float) -> None:
        while perf_counter() < until:
            await asyncio.sleep(SAMPLE_S)
            with suppress(aiohttp.ClientError, TimeoutError, OSError):
                self.samples.append(await self.sample(http))

    async def sample(self, http: aiohttp.ClientSession) -> dict[str, float]:
        """Return everything that could grow, at this moment."""
        async with http.get(self.url + "/metrics") as response:
            text = await response.text()
        values = {
            sample.name: sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }
        found = {name: values[metric] for name, metric in GAUGES.items()}
        found["loop_lag_ms"] *= 1e3
        found["rss_mb"] = rss_mb(self.pid)
        found["descriptors"] = len(os.listdir(f"/proc/{self.pid}/fd"))
        found["at"] = perf_counter()
        return found


def children(pid: int) -> list[int]:
    """Return a process's children."""
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def rss_mb(pid: int) -> float:
    """Return a process's resident memory in MB."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def slope_per_hour(samples: list[dict[str, float]], name: str) -> float:
    """Return the least-squares slope of a value, per hour."""
    at = [sample["at"] / 3600 for sample in samples]
    values = [sample[name] for sample in samples]
    mean_at, mean = sum(at) / len(at), sum(values) / len(values)
    spread = sum((x - mean_at) ** 2 for x in at)
    return sum((x - mean_at) * (y - mean) for x, y in zip(at, values, strict=True)) / spread


def p99(values: list[float]) -> float:
    return sorted(values)[min(len(values) - 1, int(0.99 * len(values)))] if values else float("nan")


def report(soak: Soak, rest: dict[str, float]) -> dict[str, object]:
    """Print and return slopes over the second half, the values at rest, and first-token times."""
    late = soak.samples[len(soak.samples) // 2 :]
    names = [name for name in late[0] if name != "at"]
    print(f"{'':14s}{'median':>12s}{'slope/h':>12s}{'p99':>12s}{'at rest':>12s}")
    rows: dict[str, object] = {}
    for name in names:
        values = sorted(sample[name] for sample in late)
        row = (values[len(values) // 2], slope_per_hour(late, name), p99(values), rest[name])
        rows[name] = dict(zip(("median", "slope_per_hour", "p99", "at_rest"), row, strict=True))
        print(f"{name:14s}" + "".join(f"{value:12.2f}" for value in row))
    middle = soak.samples[len(soak.samples) // 2]["at"]
    halves = [
        p99([s for at, s in soak.latencies if at < middle]),
        p99([s for at, s in soak.latencies if at >= middle]),
    ]
    print(f"first token p99: {halves[0]:.3f} s in the first half, {halves[1]:.3f} s in the second")
    print(dict(soak.outcomes))
    return {"gauges": rows, "first_token_p99_s": halves, "outcomes": soak.outcomes}


async def run(arguments: argparse.Namespace) -> dict[str, object]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "api", "serve", "--port", str(port), "--audit", "0.01"]
    server = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.DEVNULL)
    soak = Soak(f"http://127.0.0.1:{port}", server.pid, random.Random(arguments.seed))
    timeout = aiohttp.ClientTimeout(total=120)
    connector = aiohttp.TCPConnector(limit=0)
    try:
        async with aiohttp.ClientSession(timeout=timeout, connector=connector) as http:
            await ready(http, soak.url)
            until = perf_counter() + 60 * arguments.minutes
            async with asyncio.TaskGroup() as tasks:
                for _ in range(arguments.clients):
                    tasks.create_task(soak.client(http, until))
                tasks.create_task(soak.kill(until, arguments.kill_every_s))
                tasks.create_task(soak.watch(http, until))
            await asyncio.sleep(10)
            return report(soak, await soak.sample(http))
    finally:
        server.send_signal(signal.SIGTERM)
        code = await server.wait()
        print(f"the server's exit code: {code}")


async def ready(http: aiohttp.ClientSession, url: str) -> None:
    """Wait until the server takes requests."""
    for _ in range(600):
        with suppress(aiohttp.ClientError):
            async with http.get(url + "/ready") as response:
                if response.status == 200:
                    return
        await asyncio.sleep(0.2)
    raise TimeoutError("the server did not become ready")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--clients", type=int, default=12)
    parser.add_argument("--kill-every-s", type=float, default=60, help="0: never")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    found = asyncio.run(run(arguments))
    if arguments.output:
        arguments.output.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
