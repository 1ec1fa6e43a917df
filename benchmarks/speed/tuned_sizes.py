"""Sizes of rounds as the server chooses them against sizes set by hand, on this machine.

    python -m benchmarks.speed.tuned_sizes [--rows 32 64 128] [--round-tokens 256 512 1024]

Users ask one question after the other, each with a prompt of its own, until all are answered; the
engine of `draftwerk serve` is given the sizes that it chose, and each pair of the grid, in turn.
The note says what the chosen sizes lose against the best pair.
"""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from random import Random
from time import perf_counter

import anyio
from msgspec import structs

from benchmarks.support.bench import ResultTable, in_turn, middle, parser, run, show
from draftwerk.actors.engine import Engine, running
from draftwerk.actors.engine_parts import EngineParts
from draftwerk.actors.messages import Delta
from draftwerk.api.core.config import Settings
from draftwerk.assembly.build import engine_parts
from draftwerk.assembly.loading.loaded_models import load_models
from draftwerk.speculative.requests.request import Options
from draftwerk.speculative.sampling.params import Sampling
from draftwerk.speculative.scheduler.scheduler import RoundLimits

VOCAB = 40_000
CHOSEN = (0, 0)
"""The pair that means: as the server chooses."""


async def tokens_per_s(engine: Engine, given: argparse.Namespace, seed: int) -> float:
    """Return how many tokens a second all users get."""
    rng, numbers, tokens = Random(seed), iter(range(given.count)), 0

    async def user() -> None:
        nonlocal tokens
        for number in numbers:
            prompt = tuple(rng.randrange(100, VOCAB) for _ in range(given.prompt))
            sampling = Sampling(temperature=0.7, seed=number)
            options = Options(sampling=sampling, tokens_max=given.tokens, ignore_eos=True)
            async with engine.generate(prompt, options, request_id=f"{number}") as events:
                async for event in events:
                    if isinstance(event, Delta):
                        tokens += len(event.tokens)

    begun = perf_counter()
    async with anyio.create_task_group() as users:
        for _ in range(given.users[0]):
            users.start_soon(user)
    return tokens / (perf_counter() - begun)


def sized(limits: RoundLimits, pair: tuple[int, int]) -> RoundLimits:
    """Return the limits with a pair of sizes of the grid."""
    if pair == CHOSEN:
        return limits
    rows, tokens = pair
    return structs.replace(limits, rows_max=rows, tokens_max=tokens, tokens_revised=False)


async def measured(given: argparse.Namespace) -> tuple[RoundLimits, dict[tuple[int, int], float]]:
    """Return the chosen limits, and the tokens a second with each pair."""
    settings = Settings(model=given.model, dtype=given.dtype, spare="off", prefer="throughput")
    pairs = [CHOSEN, *product(given.rows, given.round_tokens)]
    async with load_models(settings, print) as models:
        parts: EngineParts = await engine_parts(models, settings)

        async def measure(pair: tuple[int, int], repeat: int) -> float:
            async with running(replace(parts, limits=sized(parts.limits, pair))) as engine:
                return await tokens_per_s(engine, given, repeat)

        await measure(CHOSEN, given.repeats)  # memory is taken, and caches are warm
        found = await in_turn(pairs, given.repeats, measure)
    return parts.limits, {pair: middle(each) for pair, each in found.items()}


def table(argv: Sequence[str] | None = None) -> ResultTable:
    """Measure; a row for each pair of sizes."""
    options = parser(__doc__, model="", dtype="int8", users=[32], count=48, tokens=48, repeats=3)
    options.add_argument("--prompt", type=int, default=200, help="tokens of each prompt")
    options.add_argument("--rows", nargs="+", type=int, default=[32, 64, 128])
    options.add_argument("--round-tokens", nargs="+", type=int, default=[256, 512, 1024])
    given = options.parse_args(argv)
    limits, found = run(measured, given)
    table = ResultTable(["rows", "tokens of a round", "tok/s"])
    for pair, pace in found.items():
        rows, tokens = pair if pair != CHOSEN else (limits.rows_max, limits.tokens_max)
        table.add(f"{rows}{' (chosen)' if pair == CHOSEN else ''}", tokens, pace)
    best = max(found.values())
    table.notes.append(f"the chosen sizes lose {1 - found[CHOSEN] / best:.1%} against the best")
    return table


if __name__ == "__main__":
    show(table)
