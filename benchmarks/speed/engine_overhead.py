"""What the engine adds to the device's time: `python -m benchmarks.speed.engine_overhead`.

From when every sequence has its first token until one has its last, the model process's clock says
how long a step computes and how long the device then waits for the next one: the gap, which is all
of planning, drafting, messages, process hops and layout that the device does not hide. Beside it
stands the processor time of a token: of the engine's thread, and of the model process's threads,
which share the cores with it; and how long these, ready to run, waited for a core. Every request
has a tenant of its own, so that none drafts from another's text. Two ways are measured in turn: one
round under way (`--run-ahead off`) and two, or drafts that the requests switch off and those that
the server does; the texts of both must be equal.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import pairwise
from os import getpid
from time import perf_counter
from typing import Any, Literal, NamedTuple

import anyio

from benchmarks.support.bench import ResultTable, in_turn, middle, parser, run, show
from benchmarks.support.engine import chat, engine
from benchmarks.support.processes import ProcessorTime, thread_time, threads_time
from draftwerk.actors.engine import Engine
from draftwerk.actors.events.client_events import Delta, Ended
from draftwerk.api.shared.config import Settings
from draftwerk.speculative.request import Options, Speculation
from draftwerk.speculative.sampling import Sampling

TOPICS = (
    "rivers bread clocks foxes glass snow maps violins lanterns bees harbours ink deserts comets "
    "gardens trains"
)


class EngineWay(NamedTuple):
    """How an engine is run and asked."""

    name: str
    run_ahead: Literal["off", "on"] = "on"
    speculate: str = "auto"
    drafts: bool = True
    """Whether requests allow them."""


WAYS = {
    "run-ahead": (EngineWay("one round", run_ahead="off"), EngineWay("two")),
    "drafts-off": (EngineWay("by request", drafts=False), EngineWay("by server", speculate="off")),
}


class Moment(NamedTuple):
    """How far a batch has come, and what that took."""

    at_s: float
    token_count: int
    engine: ProcessorTime
    """Of the engine's thread."""
    model: ProcessorTime
    """Of all threads of the model process."""


@dataclass(slots=True)
class TimedBatch:
    """Requests that run at once, and the stretch in which all of them decode."""

    names: list[str]
    tokens: int
    drafts: bool = True
    begun: dict[str, int] = field(default_factory=dict[str, int])
    texts: dict[str, str] = field(default_factory=dict[str, str])
    stretch: list[Moment] = field(default_factory=list[Moment])
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
            speculation=Speculation(enabled=self.drafts),
        )
        prompt = chat(f"Tell me something about {name}.")
        async with running.generate(prompt, options, request_id=name) as events:
            async for event in events:
                match event:
                    case Delta():
                        self.texts[name] = self.texts.get(name, "") + event.text
                        self.begun[name] = self.begun.get(name, 0) + len(event.tokens)
                        if len(self.begun) == len(self.names) and not self.stretch:
                            self.stretch.append(self._moment(running))
                    case Ended() if len(self.stretch) == 1:
                        self.stretch.append(self._moment(running))
                    case _:
                        pass

    def _moment(self, running: Engine) -> Moment:
        target = running.snapshot().models.processes["target"]
        assert target is not None, "the model process is away"
        engine_time = thread_time(getpid(), getpid())
        return Moment(perf_counter(), self.token_count, engine_time, threads_time(target))

    @property
    def token_count(self) -> int:
        """Tokens so far."""
        return sum(self.begun.values())

    @property
    def token_rate(self) -> float:
        return self.token_count / self.seconds


def names(count: int, label: str) -> list[str]:
    """Return as many different topics."""
    topics = TOPICS.split()
    return [f"{topics[n % len(topics)]} ({label}, {n})" for n in range(count)]


class Overhead(NamedTuple):
    """A stretch in which all sequences decode."""

    steps: list[tuple[float, float]]
    """When each step began to compute, and when it ended, in ms."""
    token_rate: float
    token_ms: tuple[float, float, float]
    """For a token: ms of the engine's thread, of the model's threads, and of their waits."""
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


async def overhead(running: Engine, sequences: int, tokens: int, drafts: bool) -> Overhead:
    """Decode as many sequences at once, each of as many tokens."""
    batch = TimedBatch(names(sequences, f"{sequences} at once"), tokens, drafts)
    await batch.run(running)
    begun, ended = batch.stretch
    digest = sha256(repr(sorted(batch.texts.items())).encode()).hexdigest()
    steps = spans(running, "device", begun.at_s, ended.at_s)
    return Overhead(steps, batch.token_rate, token_ms(begun, ended), digest)


def token_ms(begun: Moment, ended: Moment) -> tuple[float, float, float]:
    """Return what a token between two moments took, as in `Overhead`."""
    model = ended.model.since(begun.model)
    spent = (ended.engine.since(begun.engine).ran, model.ran, model.waited)
    engine_ms, model_ms, waited_ms = (ms / (ended.token_count - begun.token_count) for ms in spent)
    return engine_ms, model_ms, waited_ms


def spans(running: Engine, actor: str, begun: float, ended: float) -> list[tuple[float, float]]:
    """Return when an actor's spans between two moments began and ended, in ms."""
    events: list[dict[str, Any]] = running.trace()
    line = next(one["tid"] for one in events if one["ph"] == "M" and one["args"]["name"] == actor)
    return [
        (1e-3 * one["ts"], 1e-3 * (one["ts"] + one["dur"]))
        for one in events
        if one["ph"] == "X" and one["tid"] == line and 1e6 * begun <= one["ts"] < 1e6 * ended
    ]


async def measure(given: argparse.Namespace) -> dict[tuple[int, EngineWay], list[Overhead]]:
    """Return what was measured, by the number of sequences and the way."""
    found: dict[tuple[int, EngineWay], list[Overhead]] = {}

    async def one_way(way: EngineWay, _: int) -> None:
        settings = Settings(
            model=given.model,
            dtype=given.dtype,
            speculate=given.speculate or way.speculate,
            run_ahead=way.run_ahead,
        )
        async with engine(settings) as running:
            await TimedBatch(["warmth"], 16).run(running)
            for sequences in given.users:
                one = await overhead(running, sequences, given.tokens, way.drafts)
                found.setdefault((sequences, way), []).append(one)

    await in_turn(WAYS[given.ways], given.repeats, one_way)
    return found


def figures(found: Sequence[Overhead]) -> list[float]:
    """Return the medians of one way: the first columns, and tokens a second."""
    gaps = [one.gaps for one in found]
    return [
        middle(each[len(each) // 2] for each in gaps),
        middle(each[int(0.99 * (len(each) - 1))] for each in gaps),
        *(middle(one.token_ms[place] for one in found) for place in range(3)),
        middle(one.busy for one in found),
        middle(one.token_rate for one in found),
    ]


def table(argv: Sequence[str] | None = None) -> ResultTable:
    """Measure; a row for each number of sequences. Raises ValueError for texts that differ."""
    options = parser(__doc__, model="", dtype="bf16", users=[1, 4, 16, 64], tokens=80, repeats=3)
    options.add_argument("--speculate", default="", help="draft sources of both ways")
    options.add_argument("--ways", choices=WAYS, default="run-ahead")
    given = options.parse_args(argv)
    runs = run(measure, given)
    ways = WAYS[given.ways]
    compared = ", ".join(way.name for way in ways)
    gap = (f"gap p50, ms: {compared}", "gap p99")
    token_ms = ("ms a token: engine", "model", "its waits for a core")
    found = ResultTable(
        ["format, sequences", *gap, *token_ms, "device busy", "tok/s", "second ÷ first"]
    )
    for sequences in given.users:
        both = [runs[sequences, way] for way in ways]
        if len({each.digest for one in both for each in one}) > 1:
            raise ValueError(f"other texts with {sequences} sequences")
        columns = [*zip(*map(figures, both), strict=True)]
        ratio = columns[-1][1] / columns[-1][0]
        found.add(f"{given.dtype}, {sequences}", *columns, ratio)
    return found


if __name__ == "__main__":
    show(table)
