"""Sizes of rounds as the server chooses them against sizes set by hand, on this machine.

    python -m benchmarks.speed.tuned_sizes [--rows 32 64 128] [--round-tokens 256 512 1024]
        [--kv-memory 256MiB] [--repeats 1 --turns FILE]

Users ask one question after the other, each with a prompt of its own, until all are answered. The
engine of `draftwerk serve` first serves until it has revised the sizes that it chose at start; then
it is given these and each pair of the grid, in turn. A row has the median of the tokens a second,
and of their ratio to what the chosen sizes brought in the same turn: a change of the machine's pace
meets both. The notes say what the chosen sizes lose against the best pair, and how many texts ran
at once with them. With `--turns` the file's earlier turns that asked the same count too, and each
new one is added to it: every run chooses its sizes anew.
"""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from random import Random
from time import perf_counter

import anyio
from msgspec import structs

from benchmarks.support.bench import (
    MeasuredLine,
    ResultTable,
    add_line,
    in_turn,
    known_lines,
    middle,
    parser,
    run,
    show,
)
from draftwerk.actors.engine import Engine, running
from draftwerk.actors.engine_parts import EngineParts
from draftwerk.actors.messages import Delta
from draftwerk.api.core.config import Settings
from draftwerk.assembly.build import engine_parts
from draftwerk.assembly.loading.loaded_models import load_models
from draftwerk.speculative.requests.request import Options
from draftwerk.speculative.sampling.params import Sampling
from draftwerk.speculative.scheduler.rounds.round_sizes import FIRST_REVISIONS
from draftwerk.speculative.scheduler.scheduler import RoundLimits

VOCAB = 40_000
RoundSizes = tuple[int, int]
"""Texts at once, and tokens of a round."""
LOOK_S = 0.1
"""Between two counts of the texts that run."""


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


def sized(limits: RoundLimits, pair: RoundSizes) -> RoundLimits:
    """Return the limits with a pair of sizes."""
    rows, tokens = pair
    return structs.replace(limits, rows_max=rows, tokens_max=tokens, tokens_revised=False)


async def revised(parts: EngineParts, given: argparse.Namespace) -> tuple[RoundSizes, int]:
    """Return the sizes that a server has once it has revised those of its start, and the texts that
    ran at once at most."""
    running_counts, tokens_max = list[int](), parts.limits.tokens_max

    async def look() -> None:
        while True:
            running_counts.append(engine.snapshot().load.running)
            await anyio.sleep(LOOK_S)

    async with running(parts) as engine, anyio.create_task_group() as beside:
        beside.start_soon(look)
        rounds, repeat = 0, given.repeats
        while rounds < FIRST_REVISIONS[1]:
            await tokens_per_s(engine, given, repeat)
            repeat, rounds = repeat + 1, engine.snapshot().counts.rounds
        tokens_max = engine.snapshot().load.round_tokens
        beside.cancel_scope.cancel()
    return (parts.limits.rows_max, tokens_max), max(running_counts)


class SizedTurn(MeasuredLine, frozen=True):
    """What the sizes that were chosen brought, and those of the grid: tokens a second."""

    chosen: RoundSizes
    running_max: int
    """Texts that ran at once at most."""
    chosen_pace: float
    paces: list[tuple[RoundSizes, float]]


async def measured(given: argparse.Namespace, asked: str, first: int) -> list[SizedTurn]:
    """Return what the chosen sizes and those of the grid bring, in turns from `first` on."""
    settings = Settings(
        model=given.model,
        dtype=given.dtype,
        kv_memory=given.kv_memory,
        spare="off",
        prefer="throughput",
    )
    async with load_models(settings, print) as models:
        parts: EngineParts = await engine_parts(models, settings)

        async def measure(pair: RoundSizes, repeat: int) -> float:
            async with running(replace(parts, limits=sized(parts.limits, pair))) as engine:
                return await tokens_per_s(engine, given, repeat)

        chosen, running_max = await revised(parts, given)
        pairs = dict.fromkeys([chosen, *product(given.rows, given.round_tokens)])
        found = await in_turn([*pairs], given.repeats, measure, first)
    turns = [dict(zip(found, paces, strict=True)) for paces in zip(*found.values(), strict=True)]
    return [
        SizedTurn(
            asked,
            chosen,
            running_max,
            paces[chosen],
            [(pair, pace) for pair, pace in paces.items() if pair != chosen],
        )
        for paces in turns
    ]


def asked_of(given: argparse.Namespace) -> str:
    """Return what tells one load from another."""
    load = (given.model, given.dtype, given.kv_memory, given.users[0], given.count)
    return " ".join(map(str, (*load, given.prompt, given.tokens)))


def table(argv: Sequence[str] | None = None) -> ResultTable:
    """Measure; a row for each pair of sizes."""
    options = parser(__doc__, model="", dtype="int8", users=[32], count=48, tokens=48, repeats=3)
    options.add_argument("--prompt", type=int, default=200, help="tokens of each prompt")
    options.add_argument("--kv-memory", default="1GiB")
    options.add_argument("--rows", nargs="+", type=int, default=[32, 64, 128])
    options.add_argument("--round-tokens", nargs="+", type=int, default=[256, 512, 1024])
    options.add_argument("--turns", type=Path, help="JSON lines: earlier turns, and new ones")
    given = options.parse_args(argv)
    turns = known_lines(given.turns, SizedTurn, asked_of(given))
    for turn in run(measured, given, asked_of(given), len(turns)):
        add_line(given.turns, turn)
        turns.append(turn)
    return laid_out(turns)


def laid_out(turns: Sequence[SizedTurn]) -> ResultTable:
    """Return the table of some turns."""
    table = ResultTable(["rows", "tokens of a round", "tok/s", "of the chosen"])
    chosen = [turn.chosen for turn in turns]
    table.add(
        f"{' '.join(str(rows) for rows, _ in chosen)} (chosen)",
        " ".join(str(tokens) for _, tokens in chosen),
        middle(turn.chosen_pace for turn in turns),
        1.0,
    )
    paces: dict[RoundSizes, list[tuple[float, float]]] = {}
    for turn in turns:
        for pair, pace in turn.paces:
            paces.setdefault(pair, []).append((pace, pace / turn.chosen_pace))
    shares = {pair: middle(share for _, share in found) for pair, found in paces.items()}
    for (rows, tokens), share in shares.items():
        table.add(rows, tokens, middle(pace for pace, _ in paces[rows, tokens]), share)
    lost = 1 - 1 / max(1.0, *shares.values())
    table.notes.append(f"the chosen sizes lose {lost:.1%} against the best, in {len(turns)} turns")
    table.notes.append(f"with them {max(turn.running_max for turn in turns)} texts ran at once")
    return table


if __name__ == "__main__":
    show(table)
