"""What the engine adds to the device's time: `python -m benchmarks.speed.engine_overhead`.

From when every sequence has its first token until one has its last, the model process's clock says
how long a step computes and how long the device then waits for the next one: the gap, which is all
of planning, drafting, messages, process hops and layout that the device does not hide. Every
request has a tenant of its own, so that none drafts from another's text. Measured are one round
under way (`--run-ahead off`) and two, in turn; the texts of both must be equal.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import pairwise
from time import perf_counter
from typing import Any, Literal, NamedTuple

import anyio

from benchmarks.support.bench import ResultTable, in_turn, middle, parser, run, show
from benchmarks.support.engine import chat, engine
from draftwerk.actors.engine import Engine
from draftwerk.actors.messages import Delta, Ended
from draftwerk.actors.monitoring.snapshot import Snapshot
from draftwerk.api.core.config import Settings
from draftwerk.speculative.requests.request import Options
from draftwerk.speculative.sampling.params import Sampling

TOPICS = (
    "rivers bread clocks foxes glass snow maps violins lanterns bees harbours ink deserts comets "
    "gardens trains"
)
RunAhead = Literal["off", "on"]
RUN_AHEAD: tuple[RunAhead, RunAhead] = ("off", "on")


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
    """A stretch in which all sequences decode."""

    steps: list[tuple[float, float]]
    """When each step began to compute, and when it ended, in ms."""
    token_rate: float
    digest: str
    """Of all texts: equal ones are the same texts."""

    @property
    def gaps(self) -> list[float]:
        """From each step's end to the beginning of the next, in order of length."""
        return sorted(begun - ended for (_, ended), (begun, _) in pairwise(self.steps))

    @property
    def busy(self) -> float:
        """Return the share of the time that the device was computing."""
        computing = sum(ended - begun for begun, ended in self.steps)
        return computing / (computing + sum(self.gaps))


async def overhead(running: Engine, sequences: int, tokens: int) -> Overhead:
    """Decode as many sequences at once, each of as many tokens."""
    batch = TimedBatch(names(sequences, f"{sequences} at once"), tokens)
    await batch.run(running)
    (begun, _), (ended, _) = batch.stretch
    digest = sha256(repr(sorted(batch.texts.items())).encode()).hexdigest()
    return Overhead(spans(running, "device", begun, ended), batch.token_rate, digest)


def spans(running: Engine, actor: str, begun: float, ended: float) -> list[tuple[float, float]]:
    """Return when an actor's spans between two moments began and ended, in ms."""
    events: list[dict[str, Any]] = running.trace()
    line = next(one["tid"] for one in events if one["ph"] == "M" and one["args"]["name"] == actor)
    return [
        (1e-3 * one["ts"], 1e-3 * (one["ts"] + one["dur"]))
        for one in events
        if one["ph"] == "X" and one["tid"] == line and 1e6 * begun <= one["ts"] < 1e6 * ended
    ]


async def measure(given: argparse.Namespace) -> dict[tuple[int, str], list[Overhead]]:
    """Return what was measured, by the number of sequences and `--run-ahead`."""
    found: dict[tuple[int, str], list[Overhead]] = {}

    async def way(run_ahead: RunAhead, _: int) -> None:
        settings = Settings(dtype=given.dtype, speculate=given.speculate, run_ahead=run_ahead)
        async with engine(settings) as running:
            await TimedBatch(["warmth"], 16).run(running)
            for sequences in given.users:
                one = await overhead(running, sequences, given.tokens)
                found.setdefault((sequences, run_ahead), []).append(one)

    await in_turn(RUN_AHEAD, given.repeats, way)
    return found


def table(argv: Sequence[str] | None = None) -> ResultTable:
    """Measure; a row for each number of sequences. Raises ValueError for texts that differ."""
    options = parser(__doc__, dtype="bf16", users=[1, 4, 16, 64], tokens=80, repeats=3)
    options.add_argument("--speculate", default="auto")
    given = options.parse_args(argv)
    runs = run(measure, given)
    columns = ("format, sequences", "gap p50, ms: one round, two", "gap p99: two")
    found = ResultTable([*columns, "device busy: one, two", "tok/s: one, two", "ratio"])
    for sequences in given.users:
        one, two = (runs[sequences, way] for way in RUN_AHEAD)
        if len({each.digest for each in (*one, *two)}) > 1:
            raise ValueError(f"other texts with {sequences} sequences")
        gaps = [middle(each.gaps[len(each.gaps) // 2] for each in way) for way in (one, two)]
        late = middle(each.gaps[int(0.99 * (len(each.gaps) - 1))] for each in two)
        busy = [middle(each.busy for each in way) for way in (one, two)]
        rates = [middle(each.token_rate for each in way) for way in (one, two)]
        pairs = (tuple(busy), tuple(rates))
        found.add(f"{given.dtype}, {sequences}", tuple(gaps), late, *pairs, rates[1] / rates[0])
    return found


if __name__ == "__main__":
    show(table)
