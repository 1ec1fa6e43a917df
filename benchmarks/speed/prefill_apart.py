"""Long prompts beside texts under way: computed in their rounds, in bounded rounds, or apart.

    python -m benchmarks.speed.prefill_apart [--dtype int8] [--every 16 8 4] [--seconds 16]

Sixteen readers each have one text after the other written; every few seconds comes a burst of
prompts of 1,000 tokens, each another one and answered with 32 tokens. The engine of `draftwerk
serve` answers in these ways:

    alone          no bursts, for comparison
    throughput     with --prefer throughput: prompts are read in the rounds that decode
    latency        the default, which bounds the rounds that read prompts
    slo            the same with --slo tpot=50ms
    apart          with --prefill-processes 1

A row of the table is a load in one way: the TTFT of the long prompts and of the readers' own short
ones, the readers' time per token, their pauses between two parts of a text, and of those the
longest of each reader in the time of each burst, all p50 and p99; and the requests a second that
keep two promises, a talker's (TTFT 1 s, TPOT 50 ms) and a watcher's (TTFT 10 s, no pause over 50
ms). Below the table is what the longest pauses went to.
"""

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from statistics import quantiles
from time import perf_counter

import anyio
import msgspec

from benchmarks.support.bench import ResultTable, parser, run, show
from benchmarks.support.engine import engine
from benchmarks.support.pause_parts import (
    CoreWaits,
    PauseParts,
    device_steps,
    parts_of,
    sentence,
)
from draftwerk.actors.engine import Engine
from draftwerk.actors.messages import Delta, Failed
from draftwerk.api.core.config import Settings
from draftwerk.speculative.requests.request import Options
from draftwerk.speculative.sampling.params import Sampling

WAYS = {
    "alone": Settings(spare="off"),
    "throughput": Settings(spare="off", prefer="throughput"),
    "latency": Settings(spare="off"),
    "slo": Settings(spare="off", slo=("tpot=50ms",)),
    "apart": Settings(spare="off", prefill_processes=1),
}
VOCAB = 40_000
SHORT = 24
"""Tokens of a reader's prompt."""
SETTLE_S = 2.0


@dataclass(slots=True)
class TimedAnswer:
    """What one request was sent, and when."""

    is_long: bool
    begun_s: float
    tokens: int = 0
    times_s: list[float] = field(default_factory=list[float])

    @property
    def ttft_s(self) -> float:
        return self.times_s[0] - self.begun_s

    @property
    def tpot_s(self) -> float:
        return (self.times_s[-1] - self.times_s[0]) / max(1, self.tokens - 1)

    @property
    def pause_s(self) -> float:
        return max((then - before for before, then in pairwise(self.times_s)), default=0.0)

    def keeps(self, ttft_s: float, tpot_s: float, pause_s: float) -> bool:
        """Return whether the request had what it was promised."""
        return self.ttft_s <= ttft_s and self.tpot_s <= tpot_s and self.pause_s <= pause_s


@dataclass(slots=True)
class BurstLoad:
    """One measurement: readers, and bursts while they read."""

    engine: Engine
    given: argparse.Namespace
    every_s: float
    burst: int
    """Prompts in a burst."""
    rng: Random
    answers: list[TimedAnswer] = field(default_factory=list[TimedAnswer])
    bursts_s: list[float] = field(default_factory=list[float])
    readers: list[list[TimedAnswer]] = field(default_factory=list[list[TimedAnswer]])
    """The texts of each reader."""
    waits: CoreWaits = field(init=False)
    pauses: list[PauseParts] = field(default_factory=list[PauseParts])
    """Of each burst and reader the longest, in parts."""
    _asked: int = 0

    def __post_init__(self) -> None:
        processes = self.engine.snapshot().models.processes.values()
        self.waits = CoreWaits([one for one in processes if one is not None])

    async def run(self) -> list[object]:
        """Return the cells of a row."""
        begun = perf_counter()
        async with anyio.create_task_group() as tasks:
            for _ in range(self.given.readers):
                texts: list[TimedAnswer] = []
                self.readers.append(texts)
                tasks.start_soon(self._read, texts)
            await anyio.sleep(SETTLE_S)
            async with anyio.create_task_group() as bursts:
                while perf_counter() - begun - SETTLE_S < self.given.seconds:
                    self.bursts_s.append(perf_counter())
                    for _ in range(self.burst):
                        bursts.start_soon(self._ask, self.given.prompt, 32, True, [])
                    await anyio.sleep(self.every_s)
            tasks.cancel_scope.cancel()
        return self._cells(perf_counter() - begun)

    async def _read(self, texts: list[TimedAnswer]) -> None:
        while True:
            await self._ask(SHORT, self.given.tokens, False, texts)

    async def _ask(self, prompt: int, tokens: int, is_long: bool, texts: list[TimedAnswer]) -> None:
        """Ask for one text, which counts once it is there."""
        self._asked += 1
        sampling = Sampling(temperature=0.7, seed=self._asked)
        options = Options(sampling=sampling, tokens_max=tokens, ignore_eos=True)
        words = tuple(self.rng.randrange(100, VOCAB) for _ in range(prompt))
        answer = TimedAnswer(is_long, perf_counter())
        texts.append(answer)
        name = f"{self.every_s} {self._asked}"
        async with self.engine.generate(words, options, request_id=name) as events:
            async for event in events:
                match event:
                    case Delta():
                        answer.tokens += len(event.tokens)
                        answer.times_s.append(perf_counter())
                        self.waits.sample()
                    case Failed():
                        raise RuntimeError(event.reason)
                    case _:
                        pass
        self.answers.append(answer)

    def _cells(self, seconds: float) -> list[object]:
        long = [each for each in self.answers if each.is_long]
        short = [each for each in self.answers if not each.is_long]
        spans = [*pairwise([*self.bursts_s, perf_counter()])]
        steps = device_steps(self.engine.trace())
        self.pauses = [
            parts_of(*longest(texts, *span), steps, self.waits)
            for span in spans
            for texts in self.readers
        ]
        return [
            percentiles(each.ttft_s for each in long),
            percentiles(each.ttft_s for each in short),
            percentiles(each.tpot_s for each in short),
            percentiles(then - one for one, then in self._waits_of_texts()),
            percentiles(one.pause_s for one in self.pauses),
            sum(each.tokens for each in self.answers) / seconds,
            sum(each.keeps(1.0, 0.05, 1e9) for each in self.answers) / seconds,
            sum(each.keeps(10.0, 1e9, 0.05) for each in self.answers) / seconds,
        ]

    def _waits_of_texts(self) -> Iterable[tuple[float, float]]:
        """Return when each wait between two parts of a reader's text began and ended."""
        texts = (text for texts in self.readers for text in texts)
        return (pair for text in texts for pair in pairwise(text.times_s))

    def longest_pauses(self) -> str:
        """Return what the longest tenth of these pauses went to."""
        ordered = sorted(self.pauses, key=lambda one: one.pause_s)
        return sentence(ordered[-max(1, len(ordered) // 10) :])


def longest(texts: list[TimedAnswer], begin: float, end: float) -> tuple[float, float]:
    """Return the longest wait between two parts of one text, of which one lies in the span."""
    pairs = (pair for text in texts for pair in pairwise(text.times_s))
    found = (pair for pair in pairs if pair[1] >= begin and pair[0] <= end)
    return max(found, key=lambda pair: pair[1] - pair[0], default=(begin, begin))


def percentiles(seconds: Iterable[float]) -> tuple[float, float] | str:
    """Return p50 and p99 in milliseconds, or a dash of nothing."""
    known = list(seconds)
    if len(known) < 2:
        return "-"
    found = quantiles(known, n=100, method="inclusive")
    return 1e3 * found[49], 1e3 * found[98]


async def measured(given: argparse.Namespace, way: str) -> list[tuple[list[object], str]]:
    """Return the cells of each load, and what its longest pauses went to."""
    rows: list[tuple[list[object], str]] = []
    settings = msgspec.structs.replace(WAYS[way], model=given.model, dtype=given.dtype)
    async with engine(settings) as running:
        while None in running.snapshot().models.processes.values():  # noqa: ASYNC110
            await anyio.sleep(0.05)  # a process that computes prompts starts beside the server
        for every_s in given.every:
            burst = 0 if way == "alone" else given.burst
            load = BurstLoad(running, given, every_s, burst, Random(every_s))
            rows.append((await load.run(), load.longest_pauses()))
            await running.idle()
    return rows


def table(argv: Sequence[str] | None = None) -> ResultTable:
    """Measure; a row for each load and way."""
    options = parser(__doc__, model="", dtype="int8", tokens=128)
    options.add_argument("--ways", nargs="+", default=[*WAYS])
    options.add_argument(
        "--every",
        nargs="+",
        type=float,
        default=[16.0, 8.0, 4.0],
        help="seconds between two bursts",
    )
    options.add_argument("--burst", type=int, default=2, help="prompts in a burst")
    options.add_argument("--prompt", type=int, default=1000, help="tokens of a long prompt")
    options.add_argument("--readers", type=int, default=16)
    options.add_argument("--seconds", type=float, default=16.0, help="of each measurement")
    given = options.parse_args(argv)
    rows = {way: run(measured, given, way) for way in given.ways}
    columns = (
        "a burst every",
        "way",
        "TTFT, ms",
        "short, ms",
        "TPOT, ms",
        "pause, ms",
        "longest, ms",
    )
    found = ResultTable([*columns, "tok/s", "talkers/s", "watchers/s"])
    for number, every_s in enumerate(given.every):
        for way in given.ways:
            cells, pauses = rows[way][number]
            found.add(f"{every_s:g} s", way, *cells)
            found.notes.append(f"{every_s:g} s {way}: the longest tenth of pauses, {pauses}")
    return found


if __name__ == "__main__":
    show(table)
