"""What speculation gains: `python -m benchmarks.speed.speculation --questions FILE`.

Every prompt is decoded with drafts and without, in turn and interleaved, by one engine; the texts
must be equal. A text that repeats itself is reported apart: a small model's loops flatter n-grams.
Each category has tenants of its own, so that no run finds another's outputs in the store.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter

import msgspec

from benchmarks.support.bench import ResultTable, parser, run, show
from benchmarks.support.engine import chat, engine, generate
from benchmarks.support.prompts import by_category
from draftwerk.actors.engine import Engine
from draftwerk.api.shared.config import Settings
from draftwerk.speculative.request import Options, Speculation
from draftwerk.speculative.sampling import Sampling

LOOP_GRAM = 8
LOOP_SHARE = 0.5
"""A text is a loop if half of its 8-grams have been there before."""


@dataclass(slots=True)
class Decoded:
    """One decoding of one prompt."""

    category: str
    temperature: float
    seconds: float
    """From the first token to the last: prefill is the same with drafts and without."""
    tokens: list[int]
    steps: int

    @property
    def looping(self) -> bool:
        grams = list(zip(*(self.tokens[n:] for n in range(LOOP_GRAM)), strict=False))
        return len(grams) > 0 and 1 - len(set(grams)) / len(grams) >= LOOP_SHARE


@dataclass(slots=True, frozen=True)
class Pair:
    """One prompt decoded both ways."""

    plain: Decoded
    drafted: Decoded


async def decode(running: Engine, prompt: str, options: Options) -> Decoded | None:
    """Decode one prompt; None if it does not fit."""
    name = f"{options.tenant}-{perf_counter()}"
    try:
        found = await generate(running, chat(prompt), options, name)
    except RuntimeError:
        return None
    seconds, steps = found.seconds - found.first_s, found.stats.step_count
    return Decoded(options.tenant, options.sampling.temperature, seconds, found.tokens, steps)


async def both(running: Engine, prompt: str, options: Options, plain_first: bool) -> Pair | None:
    """Decode a prompt without drafts and with them; the texts must be equal."""
    off = msgspec.structs.replace(
        options, speculation=Speculation(enabled=False), tenant=f"{options.tenant} plain"
    )
    first, second = (off, options) if plain_first else (options, off)
    found = await decode(running, prompt, first), await decode(running, prompt, second)
    plain, drafted = found if plain_first else reversed(found)
    if plain is None or drafted is None:
        return None
    assert plain.tokens == drafted.tokens, (options, prompt)
    plain.category = drafted.category
    return Pair(plain, drafted)


async def measure(given: argparse.Namespace) -> list[Pair]:
    """Decode everything, drafts and none in turn."""
    pairs: list[Pair] = []
    settings = Settings(dtype=given.dtype, speculate=given.speculate)
    async with engine(settings) as running:
        await decode(running, "Hello.", Options(sampling=Sampling(), tokens_max=16, tenant="warm"))
        for temperature in given.temperatures:
            sampling = Sampling(temperature=temperature, seed=given.seed)
            for category, prompts in by_category(given.questions, given.count).items():
                options = Options(sampling=sampling, tokens_max=given.tokens, tenant=category)
                for number, prompt in enumerate(prompts):
                    pair = await both(running, prompt, options, number % 2 == 0)
                    if pair is not None and len(pair.plain.tokens) > 1:
                        pairs.append(pair)
    return pairs


def ratios(pairs: Sequence[Pair]) -> tuple[float | str, float | str]:
    """Return tokens per step and the ratio of summed times, dashes of nothing."""
    if not pairs:
        return "-", "-"
    tokens = sum(len(pair.plain.tokens) for pair in pairs)
    steps = sum(pair.drafted.steps for pair in pairs)
    drafted_s = sum(pair.drafted.seconds for pair in pairs)
    return tokens / steps, sum(pair.plain.seconds for pair in pairs) / drafted_s


def table(argv: Sequence[str] | None = None) -> ResultTable:
    """Measure; a row for each category, then all, and all but the texts that are loops."""
    options = parser(__doc__, questions=None, count=8, tokens=128, dtype="bf16", seed=1)
    options.add_argument("--speculate", default="auto")
    options.add_argument("--temperatures", type=float, nargs="+", default=[0.0, 1.0])
    given = options.parse_args(argv)
    pairs = run(measure, given)
    found = ResultTable(
        [
            "category",
            *(
                f"{name}, T = {temperature:g}"
                for temperature in given.temperatures
                for name in ("tokens/step", "times as fast")
            ),
        ]
    )
    categories = dict.fromkeys(pair.plain.category for pair in pairs)
    choices = {name: [pair for pair in pairs if pair.plain.category == name] for name in categories}
    choices["**all**"] = pairs
    choices["all but loops"] = [pair for pair in pairs if not pair.plain.looping]
    for name, chosen in choices.items():
        at = (
            [pair for pair in chosen if pair.plain.temperature == temperature]
            for temperature in given.temperatures
        )
        found.add(name, *(ratio for some in at for ratio in ratios(some)))
    found.notes.append(f"{sum(pair.plain.looping for pair in pairs)} of {len(pairs)} texts loop")
    return found


if __name__ == "__main__":
    show(table)
