"""Long prompts beside texts under way: computed in their rounds, in bounded rounds, or apart.

    python -m benchmarks.speed.prefill_apart [--dtype int8] [--every 16,8,4] [--seconds 16]

Sixteen readers each have one text after the other written; every few seconds comes a burst of
prompts of 1,000 tokens, each another one and answered with 32 tokens. The engine of `draftwerk
serve` answers in these ways:

    alone          no bursts, for comparison
    colocated      prompts are read in the rounds that decode
    slo            the same with --slo tpot=50ms, which bounds those rounds
    apart          with --prefill-processes 1

Printed are, for each load and way,

    TTFT      of the long prompts, p50 and p99, ms
    short     TTFT of the readers' own short prompts, p50 and p99, ms
    TPOT      of the readers' texts, p50 and p99, ms
    pause     the longest within a text of each reader in the time of each burst, p50 and p99, ms
    tok/s     generated, and prompt tokens of the bursts
    goodput   requests a second that keep two promises: a talker's (TTFT 1 s, TPOT 50 ms) and a
              watcher's (TTFT 10 s, no pause over 50 ms)
"""

import argparse
import json
from dataclasses import dataclass, field
from itertools import pairwise
from math import nan
from pathlib import Path
from random import Random
from statistics import quantiles
from time import perf_counter

import anyio
import msgspec

from benchmarks.support.engine import engine
from draftwerk.actors.engine import Engine
from draftwerk.actors.messages import Delta, Failed
from draftwerk.api.core.config import Settings
from draftwerk.assembly import model_processes
from draftwerk.speculative.request import Options
from draftwerk.speculative.sampling.params import Sampling

WAYS = {
    "alone": Settings(spare="off"),
    "colocated": Settings(spare="off"),
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
    _asked: int = 0

    async def run(self) -> dict[str, float]:
        """Return what was measured."""
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
        return self._report(perf_counter() - begun)

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
                    case Failed():
                        raise RuntimeError(event.reason)
                    case _:
                        pass
        self.answers.append(answer)

    def _report(self, seconds: float) -> dict[str, float]:
        long = [each for each in self.answers if each.is_long]
        short = [each for each in self.answers if not each.is_long]
        spans = pairwise([*self.bursts_s, perf_counter()])
        pauses = [longest(texts, *span) for span in spans for texts in self.readers]
        generated = sum(each.tokens for each in self.answers)
        return {
            "bursts": len(self.bursts_s),
            **percentiles("ttft_ms", [each.ttft_s for each in long]),
            **percentiles("short_ttft_ms", [each.ttft_s for each in short]),
            **percentiles("tpot_ms", [each.tpot_s for each in short]),
            **percentiles("pause_ms", pauses),
            "generated_per_s": generated / seconds,
            "prompt_per_s": len(long) * self.given.prompt / seconds,
            "talkers_per_s": sum(each.keeps(1.0, 0.05, 1e9) for each in self.answers) / seconds,
            "watchers_per_s": sum(each.keeps(10.0, 1e9, 0.05) for each in self.answers) / seconds,
        }


def longest(texts: list[TimedAnswer], begin: float, end: float) -> float:
    """Return the longest wait between two parts of one text, of which one lies in the span."""
    pairs = (pair for text in texts for pair in pairwise(text.times_s))
    return max((then - one for one, then in pairs if then >= begin and one <= end), default=0.0)


def percentiles(name: str, seconds: list[float]) -> dict[str, float]:
    """Return p50 and p99, in milliseconds."""
    found = quantiles(seconds, n=100, method="inclusive") if len(seconds) > 1 else seconds * 99
    found = found or [nan] * 99
    return {f"{name}_p50": 1e3 * found[49], f"{name}_p99": 1e3 * found[98]}


async def measured(given: argparse.Namespace, way: str) -> list[dict[str, object]]:
    """Return a measurement for each load."""
    rows: list[dict[str, object]] = []
    settings = msgspec.structs.replace(WAYS[way], model=given.model, dtype=given.dtype)
    async with engine(settings) as running:
        while None in running.snapshot().processes.values():  # noqa: ASYNC110
            await anyio.sleep(0.05)  # a process that computes prompts starts beside the server
        for every_s in given.every:
            burst = 0 if way == "alone" else given.burst
            load = BurstLoad(running, given, every_s, burst, Random(every_s))
            found = await load.run()
            await running.idle()
            rows.append({"way": way, "every_s": every_s, **found})
            print(line(rows[-1]), flush=True)
    return rows


def line(row: dict[str, object]) -> str:
    def pair(name: str) -> str:
        return f"{row[name + '_p50']:7.0f} {row[name + '_p99']:6.0f}"

    return (
        f"{row['every_s']:>6} {row['way']:10s}{pair('ttft_ms')}  {pair('short_ttft_ms')}  "
        f"{pair('tpot_ms')}  "
        f"{pair('pause_ms')}  {row['generated_per_s']:6.0f} {row['prompt_per_s']:6.0f}  "
        f"{row['talkers_per_s']:6.2f} {row['watchers_per_s']:6.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--ways", type=lambda text: text.split(","), default=[*WAYS])
    parser.add_argument(
        "--every",
        type=lambda text: [float(each) for each in text.split(",")],
        default=[16.0, 8.0, 4.0],
        help="seconds between two bursts",
    )
    parser.add_argument("--burst", type=int, default=2, help="prompts in a burst")
    parser.add_argument("--prompt", type=int, default=1000, help="tokens of a long prompt")
    parser.add_argument("--readers", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=128, help="of a reader's text")
    parser.add_argument("--seconds", type=float, default=16.0, help="of each measurement")
    parser.add_argument("--output", type=Path)
    parser.add_argument(
        "--niceness", type=int, help="of the prefill process, beside that of the one that decodes"
    )
    given = parser.parse_args()
    if given.niceness is not None:
        model_processes.PREFILL_NICENESS = given.niceness
    print(" every way        TTFT p50    p99  short p50   p99  TPOT p50    p99", end="")
    print("  pause p50   p99", end="")
    print("   tok/s prompt  goodput")
    rows = [row for way in given.ways for row in anyio.run(measured, given, way)]
    if given.output:
        given.output.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
