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

from benchmarks.cluster.text_clients import ServedText, TextClient, all_answers

READY_S = 240.0
PROCESS = "draftwerk_device_process{"


async def metrics(client: TextClient) -> dict[str, float]:
    """Return the page of metrics, by name and labels."""
    async with client.session.get(client.url + "/metrics") as reply:
        lines = (await reply.text()).splitlines()
    return {
        line.rpartition(" ")[0]: float(line.rpartition(" ")[2])
        for line in lines
        if not line.startswith("#")
    }


async def replica_processes(client: TextClient) -> dict[str, int]:
    """Return the process of each replica by its name: the parent of its model's process."""
    found: dict[str, int] = {}
    for name, value in (await metrics(client)).items():
        if name.startswith(PROCESS) and ' target"' in name:
            replica = name.split('"')[1].removesuffix(" target")
            found[replica] = parent_of(int(value))
    return found


def parent_of(process: int) -> int:
    """Return the process that started another."""
    with open(f"/proc/{process}/stat") as stat:
        return int(stat.read().rpartition(")")[2].split()[1])


async def killed(client: TextClient, after_s: float) -> str:
    """Kill the replica that has the most to do; returns its name."""
    await asyncio.sleep(after_s)
    processes = await replica_processes(client)
    page = await metrics(client)
    running = {
        name: page.get(f'draftwerk_replica_running{{replica="{name}"}}', 0) for name in processes
    }
    name = max(processes, key=lambda each: running[each])
    os.kill(processes[name], signal.SIGKILL)
    return f"{name} with {running[name]:g} running"


@asynccontextmanager
async def served(options: argparse.Namespace) -> AsyncGenerator[TextClient]:
    """Serve for the length of the block."""
    command = [sys.executable, "-m", "draftwerk", "serve", "--port", str(options.port)]
    command += ["--replicas", str(options.replicas), *options.serve]
    server = await asyncio.create_subprocess_exec(*command, stdout=sys.stderr)
    timeout = aiohttp.ClientTimeout(total=300)
    try:
        async with aiohttp.ClientSession(timeout=timeout) as session:
            client = TextClient(session, f"http://127.0.0.1:{options.port}", options.tokens)
            await ready(client, server, options.replicas)
            yield client
    finally:
        if server.returncode is None:
            server.terminate()
        await server.wait()


async def ready(client: TextClient, server: asyncio.subprocess.Process, replicas: int) -> None:
    """Wait until every replica is there."""
    async with asyncio.timeout(READY_S):
        while True:
            if server.returncode is not None:
                raise SystemExit(f"the server ended with {server.returncode}")
            try:
                async with client.session.get(client.url + "/ready") as reply:
                    up = reply.status == 200
                if up and len(await replica_processes(client)) >= replicas:
                    return
            except (aiohttp.ClientError, OSError, ValueError):
                pass
            await asyncio.sleep(0.5)


@dataclass(slots=True)
class SteadyLoad:
    """The recorded requests again and again, by as many clients as there are of them."""

    client: TextClient
    streams: int
    requests: int
    found: list[tuple[int, ServedText]] = field(default_factory=list[tuple[int, ServedText]])
    """What was answered, by the request's number."""

    async def run(self) -> None:
        """Send so many requests; each client the next one as soon as it has its answer."""
        numbers = iter(range(self.requests))

        async def one_after_another() -> None:
            for number in numbers:
                answer = await self.client.answer(number % self.streams)
                self.found.append((number % self.streams, answer))

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


def differences(plain: list[ServedText], found: Iterable[tuple[int, ServedText]]) -> list[str]:
    """Return what is not as it was undisturbed."""
    lines: list[str] = []
    for number, answer in found:
        want = plain[number]
        if answer.error:
            lines.append(f"request {number} ({answer.kind}): {answer.error}")
        elif answer.texts != want.texts:
            lines.append(f"request {number} ({answer.kind}): another text")
    return lines


async def run(options: argparse.Namespace) -> int:
    """Run the comparison, and print what came of it."""
    async with served(options) as client:
        await all_answers(client, 4, first=1000)  # warm
        plain = await all_answers(client, options.streams)
        faults = [f"undisturbed: {each.error}" for each in plain if each.error]
        load = SteadyLoad(client, options.streams, options.requests or options.streams)
        sending = asyncio.create_task(load.run())
        if options.drain:
            what = await restarted(sending)
        else:
            what = f"killed {await killed(client, options.after_s)}"
        await sending
        faults += differences(plain, load.found)
        page = await metrics(client)
    print(what)
    return verdict(plain, load.found, faults, page, options.pause_s)


def verdict(
    plain: list[ServedText],
    found: list[tuple[int, ServedText]],
    faults: list[str],
    page: dict[str, float],
    pause_s: float,
) -> int:
    """Print what came of a run; returns the exit code."""
    moved = {name: value for name, value in page.items() if "stream_moves" in name}
    pauses = [each.pause_s for _, each in found if len(each.times) > 2]
    usual = [each.pause_s for each in plain if len(each.times) > 2]
    print(f"{len(found)} requests, {len(faults)} faults; moves {moved}")
    print(f"longest pause of a stream: p50 {median(pauses):.2f} s, max {max(pauses):.2f} s")
    print(f"undisturbed:               p50 {median(usual):.2f} s, max {max(usual):.2f} s")
    print(*faults[:10], sep="\n")
    kept = not faults and median(pauses) <= pause_s and sum(moved.values()) > 0
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
    parser.add_argument("--port", type=int, default=18411)
    parser.add_argument("serve", nargs="*", help="after --: options of `draftwerk serve`")
    return asyncio.run(run(parser.parse_args(arguments)))


if __name__ == "__main__":
    raise SystemExit(main())
