"""What the engine adds to the device's time, and what batching gains; `--help` has the knobs.

From when every sequence has its first token until one has its last, the model process's clock says
how long a step computes and how long the device then waits for the next one: the gap, which is all
of planning, drafting, messages, process hops and layout that the device does not hide. Every
request has a tenant of its own, so that none drafts from another's text.
"""

import argparse
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import pairwise
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

import anyio

from benchmarks.support.engine import chat, engine
from draftwerk.actors.engine import Engine
from draftwerk.actors.messages import Delta, Ended
from draftwerk.actors.monitoring.snapshot import Snapshot
from draftwerk.api.core.config import Settings
from draftwerk.speculative.request import Options
from draftwerk.speculative.sampling.params import Sampling

TOPICS = (
    "rivers bread clocks foxes glass snow maps violins lanterns bees harbours ink deserts comets "
    "gardens trains"
)
HEADING = (
    "sequences rounds  wall ms  step ms  gap p50  gap p99   busy  drafting    tok/s tok/step texts"
)


@dataclass(slots=True)
class TimedBatch:
    """Requests that run at once, and the stretch in which all of them decode."""

    names: list[str]
    tokens: int
    begun: dict[str, int] = field(default_factory=dict[str, int])
    texts: dict[str, str] = field(default_factory=dict[str, str])
    stretch: list[tuple[float, Snapshot]] = field(default_factory=list[tuple[float, Snapshot]])
    """Its beginning and its end."""
    seconds: float = 0.0

    async def run(self, running: Engine) -> None:
        begun = perf_counter()
        async with anyio.create_task_group() as tasks:
            for name in self.names:
                tasks.start_soon(self._one, running, name)
        self.seconds = perf_counter() - begun

    async def _one(self, running: Engine, name: str) -> None:
        options = Options(
            sampling=Sampling(temperature=0.0),
            tokens_max=self.tokens,
            ignore_eos=True,
            tenant=name,
        )
        prompt = chat(f"Tell me something about {name}.")
        async with running.generate(prompt, options, request_id=name) as events:
            async for event in events:
                match event:
                    case Delta():
                        self.texts[name] = self.texts.get(name, "") + event.text
                        self.begun[name] = self.begun.get(name, 0) + len(event.tokens)
                        if len(self.begun) == len(self.names) and not self.stretch:
                            self.stretch.append((perf_counter(), running.snapshot()))
                    case Ended() if len(self.stretch) == 1:
                        self.stretch.append((perf_counter(), running.snapshot()))
                    case _:
                        pass

    @property
    def token_rate(self) -> float:
        return sum(self.begun.values()) / self.seconds


def names(count: int, label: str) -> list[str]:
    """Return as many different topics."""
    topics = TOPICS.split()
    return [f"{topics[n % len(topics)]} ({label}, {n})" for n in range(count)]


class Overhead(NamedTuple):
    """A stretch in which all sequences decode; times in ms."""

    sequences: int
    wall: float
    """A round's mean time."""
    device: float
    """Of it, the device's, reading and laying out the rows included."""
    drafting: float
    """Of it, the draft sources'."""
    steps: list[tuple[float, float]]
    """When each step began to compute, and when it ended."""
    token_rate: float
    per_step: float
    """Tokens that a sequence got in a round."""
    digest: str
    """Of all texts: equal ones are the same texts."""

    @property
    def gaps(self) -> list[float]:
        """From each step's end to the beginning of the next."""
        return [begun - ended for (_, ended), (begun, _) in pairwise(self.steps)]

    @property
    def busy(self) -> float:
        """Return the share of the time that the device was computing."""
        computing = sum(ended - begun for begun, ended in self.steps)
        return computing / (computing + sum(self.gaps))

    def __str__(self) -> str:
        gaps = sorted(self.gaps)
        p50, p99 = (gaps[int(share * (len(gaps) - 1))] for share in (0.5, 0.99))
        step = median(ended - begun for begun, ended in self.steps)
        return (
            f"{self.sequences:9d} {len(self.steps):6d} {self.wall:8.2f} {step:8.2f} "
            f"{p50:8.3f} {p99:8.3f} {self.busy:6.3f} {self.drafting:9.3f} {self.token_rate:8.1f} "
            f"{self.per_step:8.2f} {self.digest}"
        )


async def overhead(running: Engine, sequences: int, tokens: int) -> Overhead:
    """Decode as many sequences at once, each of as many tokens."""
    batch = TimedBatch(names(sequences, f"{sequences} at once"), tokens)
    await batch.run(running)
    (begun, before), (ended, after) = batch.stretch
    rounds = after.rounds - before.rounds
    wall_ms = 1e3 * (ended - begun) / rounds
    drafting = spans(running, "draft", begun, ended)
    return Overhead(
        sequences,
        wall_ms,
        (after.device_ms - before.device_ms) / rounds,
        sum(last - first for first, last in drafting) / rounds,
        spans(running, "device", begun, ended),
        batch.token_rate,
        (after.generated_tokens - before.generated_tokens) / rounds / sequences,
        sha256(repr(sorted(batch.texts.items())).encode()).hexdigest()[:8],
    )


async def batching(running: Engine, tokens: int) -> float:
    """Return how many times as fast 16 sequences are at once as in turn."""
    in_turn = [TimedBatch([name], tokens) for name in names(16, "in turn")]
    for one in in_turn:
        await one.run(running)
    at_once = TimedBatch(names(16, "together"), tokens)
    await at_once.run(running)
    return sum(one.seconds for one in in_turn) / at_once.seconds


def spans(running: Engine, actor: str, begun: float, ended: float) -> list[tuple[float, float]]:
    """Return when an actor's spans between two moments began and ended, in ms."""
    events: list[dict[str, Any]] = running.trace()
    line = next(one["tid"] for one in events if one["ph"] == "M" and one["args"]["name"] == actor)
    return [
        (1e-3 * one["ts"], 1e-3 * (one["ts"] + one["dur"]))
        for one in events
        if one["ph"] == "X" and one["tid"] == line and 1e6 * begun <= one["ts"] < 1e6 * ended
    ]


async def main(arguments: argparse.Namespace) -> None:
    settings = Settings(
        dtype=arguments.dtype, speculate=arguments.speculate, run_ahead=arguments.run_ahead
    )
    async with engine(settings) as running:
        await TimedBatch(["warmth"], 16).run(running)
        print(HEADING)
        for sequences in arguments.sequences:
            print(await overhead(running, sequences, arguments.tokens), flush=True)
        if arguments.batching:
            ratio = await batching(running, arguments.tokens)
            print(f"16 at once are {ratio:.1f} times as fast as 16 in turn")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dtype", default="bf16")
    parser.add_argument("--speculate", default="auto")
    parser.add_argument("--run-ahead", default="on", choices=("on", "off"))
    parser.add_argument("--batching", action="store_true", help="measure what batching gains too")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--sequences", type=int, nargs="+", default=[1, 8, 16, 64])
    return parser.parse_args()


if __name__ == "__main__":
    anyio.run(main, parse(), backend_options={"use_uvloop": True})
