"""What speculation gains, by category: `python -m benchmarks.speed.speculation prompts.jsonl`.

Every prompt is decoded with drafts and without, in turn and interleaved, by one engine; the texts
must be equal. A text that repeats itself is reported apart: a small model's loops flatter n-grams.
Each category has tenants of its own, so that no run finds another's outputs in the store.
"""

import argparse
import json
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from time import perf_counter

import anyio
import msgspec

from benchmarks.support.engine import engine
from benchmarks.support.prompts import by_category
from draftwerk.actors.client_prompts import Chat, ChatMessage
from draftwerk.actors.engine import Engine
from draftwerk.actors.messages import Delta, Ended, Failed
from draftwerk.api.core.config import Settings
from draftwerk.speculative.request import Options, Speculation
from draftwerk.speculative.sampling.params import Sampling

LOOP_GRAM = 8
LOOP_SHARE = 0.5
"""A text is a loop if half of its 8-grams have been there before."""


@dataclass(slots=True)
class Decoded:
    """One decoding of one prompt."""

    category: str
    temperature: float
    drafts: bool
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
    drafts = options.speculation.enabled
    found = Decoded(options.tenant, options.sampling.temperature, drafts, 0.0, [], 0)
    begun = 0.0
    chat = Chat((ChatMessage("user", prompt),))
    name = f"{options.tenant}-{perf_counter()}"
    async with running.generate(chat, options, request_id=name) as events:
        async for event in events:
            match event:
                case Delta():
                    begun = begun or perf_counter()
                    found.tokens.extend(event.tokens)
                case Ended():
                    found.steps = event.stats.step_count
                case Failed():
                    return None
    found.seconds = perf_counter() - begun
    return found


async def both(running: Engine, prompt: str, options: Options, plain_first: bool) -> Pair | None:
    """Decode a prompt without drafts and with them; the texts must be equal."""
    off = msgspec.structs.replace(
        options, speculation=Speculation(enabled=False), tenant=f"{options.tenant} plain"
    )
    if plain_first:
        plain = await decode(running, prompt, off)
        drafted = await decode(running, prompt, options)
    else:
        drafted = await decode(running, prompt, options)
        plain = await decode(running, prompt, off)
    if plain is None or drafted is None:
        return None
    assert plain.tokens == drafted.tokens, (options, prompt)
    plain.category = drafted.category
    return Pair(plain, drafted)


async def measure(arguments: argparse.Namespace) -> list[Pair]:
    """Decode everything, drafts and none in turn."""
    pairs: list[Pair] = []
    settings = Settings(dtype=arguments.dtype, speculate=arguments.speculate)
    async with engine(settings) as running:
        await decode(running, "Hello.", Options(sampling=Sampling(), tokens_max=16, tenant="warm"))
        for temperature in arguments.temperatures:
            sampling = Sampling(temperature=temperature, seed=arguments.seed)
            for category, prompts in by_category(arguments.prompts, arguments.count).items():
                options = Options(sampling=sampling, tokens_max=arguments.tokens, tenant=category)
                for number, prompt in enumerate(prompts):
                    pair = await both(running, prompt, options, number % 2 == 0)
                    if pair is not None:
                        pairs.append(pair)
    return pairs


def summary(pairs: Sequence[Pair]) -> dict[str, float]:
    """Return a set of pairs' ratios of summed times, and tokens per step."""
    told = [pair for pair in pairs if len(pair.plain.tokens) > 1]
    if not told:
        return {}
    tokens = sum(len(pair.plain.tokens) for pair in told)
    plain_s = sum(pair.plain.seconds for pair in told)
    drafted_s = sum(pair.drafted.seconds for pair in told)
    return {
        "texts": len(told),
        "loops": sum(pair.plain.looping for pair in told),
        "tokens_per_step": round(tokens / sum(pair.drafted.steps for pair in told), 3),
        "plain_tok_s": round(tokens / plain_s, 1),
        "drafted_tok_s": round(tokens / drafted_s, 1),
        "speed_up": round(plain_s / drafted_s, 3),
        "median_speed_up": round(
            median(pair.plain.seconds / pair.drafted.seconds for pair in told), 3
        ),
    }


def tabulate(pairs: list[Pair], temperatures: list[float]) -> dict[str, dict[str, float]]:
    """Print and return a row for each category and temperature; loops and the rest apart."""
    rows: dict[str, dict[str, float]] = {}
    for temperature in temperatures:
        here = [pair for pair in pairs if pair.plain.temperature == temperature]
        for category in dict.fromkeys(pair.plain.category for pair in here):
            mine = [pair for pair in here if pair.plain.category == category]
            rows[f"{category}, T = {temperature:g}"] = summary(mine)
        rows[f"all, T = {temperature:g}"] = summary(here)
        for name, looping in (("all but loops", False), ("loops", True)):
            apart = [pair for pair in here if pair.plain.looping == looping]
            rows[f"{name}, T = {temperature:g}"] = summary(apart)
    for name, row in rows.items():
        print(f"{name:26s}" + "  ".join(f"{key} {value:g}" for key, value in row.items()))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("prompts", type=Path)
    parser.add_argument("--count", type=int, default=8, help="prompts per category")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--dtype", default="bf16")
    parser.add_argument("--speculate", default="auto")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--temperatures", type=float, nargs="+", default=[0.0, 1.0])
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    pairs = anyio.run(measure, arguments, backend_options={"use_uvloop": True})
    rows = tabulate(pairs, arguments.temperatures)
    if arguments.output:
        arguments.output.write_text(json.dumps(record(arguments, pairs, rows), indent=1))


def record(
    arguments: argparse.Namespace, pairs: list[Pair], rows: dict[str, dict[str, float]]
) -> dict[str, object]:
    """Return what is kept of a run: the table, and a line for each decoding."""
    options = {key: value for key, value in vars(arguments).items() if key != "output"}
    return {
        "options": {key: getattr(value, "name", value) for key, value in options.items()},
        "machine": platform.machine(),
        "summary": rows,
        "decodings": [
            {**asdict(one), "tokens": len(one.tokens), "looping": one.looping}
            for pair in pairs
            for one in (pair.plain, pair.drafted)
        ],
    }


if __name__ == "__main__":
    main()
