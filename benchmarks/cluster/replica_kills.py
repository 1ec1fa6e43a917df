"""Kill replicas under live streams of every kind: `python -m benchmarks.cluster.replica_kills`.

It serves the default model with `draftwerk serve --replicas N`, records what 32 requests get
undisturbed (SSE, WebSocket, JSON, n = 2, seeded, log-probabilities, a beam search), and then what
they get while a replica is killed with SIGKILL, or while all are restarted one after the other
(`--drain`), again and again until `--requests` were answered. A text that differs, an error, or
pauses that are longer than `--pause-s` at the median end it with 1.
"""

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from statistics import median

import aiohttp

from benchmarks.support.server import draftwerk
from benchmarks.support.streams import Stream, run, run_all, streams
from draftwerk_tools.loadtest.server.metrics import MetricsPage, fetch_metrics

READY_S = 240.0
MOVES = "draftwerk_stream_moves_total"


@dataclass(frozen=True, slots=True)
class ClusterClient:
    """A client of a server with replicas."""

    http: aiohttp.ClientSession
    url: str
    tokens: int

    def requests(self, count: int) -> list[Stream]:
        """Return requests of all kinds: those of `streams`, some of two choices, some whole."""
        found = streams(count, self.tokens)
        for one in found[:-1:8]:
            one.body |= {"n": 2, "temperature": 0.8, "logprobs": True}
        for one in found[4:-1:8]:
            one.body["stream"] = False
        return found

    async def answers(self, count: int) -> list[Stream]:
        """Return what this many requests at once get."""
        found = self.requests(count)
        await run_all(self.http, self.url, found)
        return found

    async def metrics(self) -> MetricsPage:
        return await fetch_metrics(self.http, self.url)

    async def processes(self) -> dict[str, int]:
        """Return the process of each replica by its name: the parent of its model's process."""
        page = (await self.metrics()).by_label("draftwerk_device_process", "device")
        return {
            name.removesuffix(" target"): parent_of(int(process))
            for name, process in page.items()
            if name.endswith(" target")
        }

    async def kill(self, after_s: float) -> str:
        """Kill the replica that has the most to do; returns its name."""
        await asyncio.sleep(after_s)
        processes = await self.processes()
        running = (await self.metrics()).by_label("draftwerk_replica_running", "replica")
        name = max(processes, key=lambda each: running.get(each, 0))
        os.kill(processes[name], signal.SIGKILL)
        return f"{name} with {running.get(name, 0):g} running"


def parent_of(process: int) -> int:
    """Return the process that started another."""
    with open(f"/proc/{process}/stat") as stat:
        return int(stat.read().rpartition(")")[2].split()[1])


@asynccontextmanager
async def served(options: argparse.Namespace) -> AsyncGenerator[ClusterClient]:
    """Serve for the length of the block, once every replica is there."""
    timeout = aiohttp.ClientTimeout(total=300)
    async with (
        draftwerk("--replicas", str(options.replicas), *options.serve) as server,
        aiohttp.ClientSession(timeout=timeout) as http,
    ):
        client = ClusterClient(http, server.url, options.tokens)
        async with asyncio.timeout(READY_S):
            while len(await client.processes()) < options.replicas:  # noqa: ASYNC110
                await asyncio.sleep(0.5)
        yield client


@dataclass(slots=True)
class SteadyLoad:
    """The recorded requests again and again, by as many clients as there are of them."""

    client: ClusterClient
    streams: int
    requests: int
    found: list[tuple[int, Stream]] = field(default_factory=list[tuple[int, Stream]])
    """What was answered, by the request's number."""

    async def run(self) -> None:
        """Send so many requests; each client the next one as soon as it has its answer."""
        numbers = iter(range(self.requests))

        async def one_after_another() -> None:
            for number in numbers:
                place = number % self.streams
                one = self.client.requests(self.streams)[place]
                await run(self.client.http, self.client.url, one)
                self.found.append((place, one))

        await asyncio.gather(*(one_after_another() for _ in range(self.streams)))


async def restarted(load: "asyncio.Task[None]") -> str:
    """Restart every replica, one after the other, for as long as there is load."""
    count, codes = 0, set[int]()
    while not load.done():
        command = [sys.executable, "-m", "draftwerk", "cluster", "drain", "--all"]
        process = await asyncio.create_subprocess_exec(*command, stdout=sys.stderr)
        codes.add(await process.wait())
        count += 1
    if codes - {0}:
        raise SystemExit(f"cluster drain --all ended with {codes}")
    return f"restarted all replicas {count} times"


def differences(plain: Sequence[Stream], found: Iterable[tuple[int, Stream]]) -> list[str]:
    """Return what is not as it was undisturbed."""
    return [
        f"{one.name}: {one.ending if one.texts == plain[place].texts else 'another text'}"
        for place, one in found
        if (one.texts, one.ending) != (plain[place].texts, plain[place].ending)
    ]


async def compared(options: argparse.Namespace) -> int:
    """Run the comparison, print what came of it, and return the exit code."""
    async with served(options) as client:
        await client.answers(4)  # warm
        plain = await client.answers(options.streams)
        load = SteadyLoad(client, options.streams, options.requests or options.streams)
        sending = asyncio.create_task(load.run())
        if options.drain:
            print(await restarted(sending))
        else:
            print(f"killed {await client.kill(options.after_s)}")
        await sending
        moved = sum((await client.metrics()).by_label(MOVES, "reason").values())
    faults = [f"{one.name}, undisturbed: {one.ending}" for one in plain if not one.texts]
    faults += differences(plain, load.found)
    pauses, usual = (
        [one.pause_s for one in found if len(one.arrivals) > 2]
        for found in ([one for _, one in load.found], plain)
    )
    print(f"{len(load.found)} requests, {len(faults)} faults; {moved:g} streams moved")
    print(f"longest pause of a stream: p50 {median(pauses):.2f} s, max {max(pauses):.2f} s")
    print(f"undisturbed:               p50 {median(usual):.2f} s, max {max(usual):.2f} s")
    print(*faults[:10], sep="\n")
    kept = not faults and median(pauses) <= options.pause_s and moved > 0
    print("passed" if kept else "FAILED: every text, no error, streams moved, short pauses")
    return 0 if kept else 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--after-s", type=float, default=2.0, help="from the start to the kill")
    parser.add_argument("--requests", type=int, default=0, help="as many as streams if 0")
    parser.add_argument("--pause-s", type=float, default=1.0, help="at the median, at most")
    parser.add_argument("--drain", action="store_true", help="restart all replicas instead")
    parser.add_argument("serve", nargs="*", help="after --: options of `draftwerk serve`")
    return asyncio.run(compared(parser.parse_args(arguments)))


if __name__ == "__main__":
    raise SystemExit(main())
