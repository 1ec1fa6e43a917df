"""How many streams one event loop sustains: the whole server over a device that only takes time.

    python -m benchmarks.speed.event_loop [--step-ms 1] [--streams 1 16 64 256] [--profile]

Every step of the device takes the same time and gives each row one token, so that all else a round
costs is the server's own: planning, detokenizing, writing events, and the actors' messages. Clients
read over Server-Sent Events in a process of their own. Printed are

    rounds/s       what came through, and the share of what the device alone would do
    events/s       of all streams together
    cpu            seconds of processor time of the server a second
    us/event       processor time per event

`--profile` prints where the server's time went, by function.
"""

import argparse
import asyncio
import cProfile
import pstats
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import aiohttp
import anyio

from draftwerk.actors.engine import EngineParts, running
from draftwerk.api.core.config import Settings
from draftwerk.api.core.ports import RunningServer, ServedModel
from draftwerk.api.serving.server import serve
from draftwerk.assembly.build import read_infos, read_text
from draftwerk.loadtest.server.launcher import free_port, says_ready, serving
from draftwerk.speculative.costs.work import StepLoad
from draftwerk.speculative.drafting.proposer import Proposer
from draftwerk.speculative.protocol.frames import OnProgress
from draftwerk.speculative.protocol.rounds import Decision, Proposal, StepReport, Verdict
from draftwerk.speculative.scheduler.scheduler import RoundLimits

CONTEXT, BLOCK = 4096, 16
WORDS = "the river runs down from the hills to the sea and nobody knows why it is so slow "


@dataclass(slots=True)
class PacedDevice:
    """A target whose steps take a fixed time, and whose texts go round in a circle."""

    step_s: float
    tokens: Sequence[int]
    steps: int = 0
    alive: bool = True

    async def run(self, work: Proposal) -> Verdict:
        """Wait for as long as a step takes; every row that samples gets its next token."""
        ends = anyio.current_time() + self.step_s
        self.steps += 1
        decisions = tuple(
            Decision(tokens=(self.tokens[row.stop % len(self.tokens)],) if row.samples else ())
            for row in work.round.rows
        )
        await anyio.sleep_until(ends)
        return Verdict(
            work.round.round_id,
            work.round.pipeline_slot,
            decisions,
            StepReport(load=StepLoad(len(decisions), len(decisions)), device_ms=1e3 * self.step_s),
        )

    async def revive(self) -> None:
        """Do nothing: it is never lost."""

    async def watch(self) -> None:
        """Do nothing, for the same reason."""

    def check(self) -> None:
        """Do nothing: nothing is kept beside it."""


def serve_paced(port: int, step_s: float) -> int:
    """Serve the default model's text tools over a paced device."""

    @asynccontextmanager
    async def build(settings: Settings, report: OnProgress) -> AsyncGenerator[RunningServer]:
        info, _ = read_infos(settings, report)
        text = read_text(info)
        device = PacedDevice(step_s, text.encode(WORDS))
        parts = EngineParts(
            text=text,
            target=lambda: device,
            block_count=512 * CONTEXT // BLOCK,
            block_size=BLOCK,
            context_max=CONTEXT,
            stop_token_ids=(),
            limits=RoundLimits(rows_max=512, tokens_max=1024, draft_max=0),
            proposer=lambda: Proposer(()),
            requests_max=1024,
        )
        async with running(parts) as engine:
            model = ServedModel(
                name="paced", context_max=CONTEXT, vocab_size=info.vocab_size, draft_sources=()
            )
            yield RunningServer(engine=engine, text_tools=text, model=model)

    return serve(Settings(port=port, requests_max=512, speculate="off"), build)


@dataclass(slots=True)
class Measured:
    """Of one number of streams."""

    streams: int
    seconds: float
    events: int
    rounds: int
    cpu_s: float

    def line(self, step_s: float) -> str:
        rounds_s, events_s = self.rounds / self.seconds, self.events / self.seconds
        return (
            f"{self.streams:7d} {rounds_s:9.0f} {rounds_s * step_s:7.1%} {events_s:9.0f} "
            f"{self.cpu_s / self.seconds:6.2f} {1e6 * self.cpu_s / self.events:9.1f}"
        )


async def measure(url: str, process_id: int, streams: int, tokens: int) -> Measured:
    """Read so many streams to their ends."""
    body = {
        "messages": [{"role": "user", "content": "Go on."}],
        "max_tokens": tokens,
        "ignore_eos": True,
        "stream": True,
    }
    events = 0

    async def one(http: aiohttp.ClientSession) -> None:
        nonlocal events
        async with http.post(f"{url}/v1/chat/completions", json=body) as response:
            async for line in response.content:
                events += line.startswith(b"data: {")

    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as http:
        begun, cpu = perf_counter(), _cpu_s(process_id)
        await asyncio.gather(*(one(http) for _ in range(streams)))
        seconds = perf_counter() - begun
    return Measured(streams, seconds, events, tokens, _cpu_s(process_id) - cpu)


def _cpu_s(process_id: int) -> float:
    fields = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100.0


async def run(given: argparse.Namespace) -> None:
    port = free_port()
    command = [sys.executable, "-m", "benchmarks.speed.event_loop", "--serve", str(port)]
    command += ["--step-ms", str(given.step_ms), *(["--profile"] if given.profile else [])]
    url = f"http://127.0.0.1:{port}"
    log = Path(given.log)
    async with serving(command, url, ready=says_ready, log=log) as server:
        await measure(url, server.pid, 4, 50)
        print("streams  rounds/s  device  events/s    cpu  us/event", flush=True)
        for streams in given.streams:
            found = await measure(url, server.pid, streams, given.tokens)
            print(found.line(1e-3 * given.step_ms), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--step-ms", type=float, default=1.0)
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 16, 64, 256])
    parser.add_argument("--tokens", type=int, default=400)
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--log", default="results/event_loop.log")
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve is None:
        asyncio.run(run(given))
        if given.profile:
            print(Path(given.log).read_text())
        return
    if not given.profile:
        sys.exit(serve_paced(given.serve, 1e-3 * given.step_ms))
    profile = cProfile.Profile()
    profile.runcall(serve_paced, given.serve, 1e-3 * given.step_ms)
    pstats.Stats(profile, stream=sys.stderr).sort_stats("tottime").print_stats(30)


if __name__ == "__main__":
    main()
