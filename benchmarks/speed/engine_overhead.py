"""What the engine adds to the device's time, and what batching gains; `--help` has the knobs.

From when every sequence has its first token until one has its last, a round's wall time is the
model process's time, the draft sources' time, and the engine's: planning, messages, process hops,
detokenizing, all of it that the device does not hide. Every request has a tenant of its own, so
that none drafts from another's text.
"""

import argparse
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, NamedTuple

import anyio

from benchmarks.support.engine import chat, engine
from draftwerk.actors.engine import Engine
from draftwerk.actors.messages import Delta, Ended, Options
from draftwerk.actors.monitoring.snapshot import Snapshot
from draftwerk.api.core.config import Settings
from draftwerk.speculative.sampling.params import Sampling

TOPICS = (
    "rivers bread clocks foxes glass snow maps violins lanterns bees harbours ink deserts comets "
    "gardens trains"
)


@dataclass(slots=True)
class TimedBatch:
    """Requests that run at once, and the stretch in which all of them decode."""

    names: list[str]
    tokens: int
    begun: dict[str, int] = field(default_factory=dict[str, int])
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
    return [f"{topic} ({label})" for topic in TOPICS.split()[:count]]


class Overhead(NamedTuple):
    """A round's mean time while all sequences decode, in ms."""

    sequences: int
    rounds: int
    wall: float
    device: float
    drafting: float
    token_rate: float

    @property
    def engine(self) -> float:
        return self.wall - self.device - self.drafting

    def __str__(self) -> str:
        return (
            f"{self.sequences:9d} {self.rounds:6d} {self.wall:9.2f} {self.device:10.2f} "
            f"{self.drafting:12.3f} {self.engine:10.3f} {self.token_rate:8.1f}"
        )


async def overhead(running: Engine, sequences: int, tokens: int) -> Overhead:
    """Decode as many sequences at once, each of as many tokens."""
    batch = TimedBatch(names(sequences, f"{sequences} at once"), tokens)
    await batch.run(running)
    (begun, before), (ended, after) = batch.stretch
    rounds = after.rounds - before.rounds
    wall_ms = 1e3 * (ended - begun) / rounds
    device_ms = (after.device_ms - before.device_ms) / rounds
    drafting_ms = span_ms(running, "draft", begun, ended) / rounds
    return Overhead(sequences, rounds, wall_ms, device_ms, drafting_ms, batch.token_rate)


async def batching(running: Engine, tokens: int) -> float:
    """Return how many times as fast 16 sequences are at once as in turn."""
    in_turn = [TimedBatch([name], tokens) for name in names(16, "in turn")]
    for one in in_turn:
        await one.run(running)
    at_once = TimedBatch(names(16, "together"), tokens)
    await at_once.run(running)
    return sum(one.seconds for one in in_turn) / at_once.seconds


def span_ms(running: Engine, actor: str, begun: float, ended: float) -> float:
    """Return how long an actor worked between two moments."""
    events: list[dict[str, Any]] = running.trace()
    line = next(one["tid"] for one in events if one["ph"] == "M" and one["args"]["name"] == actor)
    return 1e-3 * sum(
        one["dur"]
        for one in events
        if one["ph"] == "X" and one["tid"] == line and 1e6 * begun <= one["ts"] < 1e6 * ended
    )


async def main(arguments: argparse.Namespace) -> None:
    settings = Settings(dtype=arguments.dtype, speculate=arguments.speculate)
    async with engine(settings) as running:
        await TimedBatch(["warmth"], 16).run(running)
        print(
            "sequences rounds  wall ms  device ms  drafting ms  engine ms    tok/s   (ms a round)"
        )
        for sequences in (1, 8, 16):
            print(await overhead(running, sequences, arguments.tokens))
        ratio = await batching(running, arguments.tokens)
        print(f"16 at once are {ratio:.1f} times as fast as 16 in turn")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dtype", default="bf16")
    parser.add_argument("--speculate", default="auto")
    parser.add_argument("--tokens", type=int, default=64)
    return parser.parse_args()


if __name__ == "__main__":
    anyio.run(main, parse(), backend_options={"use_uvloop": True})
