"""Beam search, speculated and plain, on the same prompts in one engine.

    python -m benchmarks.drafting.beams --questions spec_bench.jsonl

Each line of the file has `turns`, the first of which is asked, and maybe a `category`. The two ways
alternate, and medians count; every text must be the same.
"""

import argparse
import json
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from benchmarks.support.bench import ResultTable, in_turn, middle, parser, run, show
from benchmarks.support.engine import Answer, chat, engine, generate
from benchmarks.support.prompts import QUESTIONS
from draftwerk.actors.engine import Engine
from draftwerk.api.shared.config import Settings
from draftwerk.speculative.request import Options, Speculation
from draftwerk.speculative.sampling import Sampling


def options(arguments: argparse.Namespace, speculated: bool) -> Options:
    return Options(
        sampling=Sampling(temperature=0.0),
        tokens_max=arguments.tokens,
        beam_width=arguments.width,
        early_stopping=True,
        speculation=Speculation(enabled=speculated),
    )


class BeamRun(NamedTuple):
    """One search."""

    found: Answer
    rounds: int


async def one(
    running: Engine, question: str, arguments: argparse.Namespace, speculated: bool, name: str
) -> BeamRun:
    """Search once."""
    rounds = running.snapshot().counts.rounds
    found = await generate(running, chat(question), options(arguments, speculated), name)
    return BeamRun(found, running.snapshot().counts.rounds - rounds)


def questions(given: argparse.Namespace) -> list[str]:
    """Return the prompts, the first of the file left out: guesses were tuned on them."""
    if given.questions is None:
        return list(QUESTIONS[: given.count])
    rows = [json.loads(line) for line in given.questions.open()]
    wanted = [row for row in rows if row.get("category", "") in ("", given.category)]
    return [row["turns"][0] for row in wanted[given.skip :][: given.count]]


async def measure(given: argparse.Namespace) -> list[dict[bool, list[BeamRun]]]:
    """Search for each prompt both ways. Raises ValueError for texts that differ."""
    found: list[dict[bool, list[BeamRun]]] = []
    async with engine(Settings(dtype=given.dtype)) as running:
        await one(running, "What is a river?", given, True, "warm")
        for number, question in enumerate(questions(given)):
            # The prompt is read once beforehand: what is compared is the search.
            reading = argparse.Namespace(**vars(given) | {"tokens": 1})
            await one(running, question, reading, False, f"{number}:read")
            search = partial(_named, running, question, given, number)
            found.append(await in_turn((False, True), given.repeats, search))
            if len({each.found.text for runs in found[-1].values() for each in runs}) > 1:
                raise ValueError(f"prompt {number}: another text when speculated")
    return found


async def _named(
    running: Engine,
    question: str,
    given: argparse.Namespace,
    number: int,
    speculated: bool,
    repeat: int,
) -> BeamRun:
    return await one(running, question, given, speculated, f"{number}:{repeat}:{speculated}")


def table(argv: Sequence[str] | None = None) -> ResultTable:
    """Measure; a row for each way."""
    options = parser(__doc__, questions=None, count=20, tokens=96, repeats=3, dtype="bf16")
    options.add_argument("--category", default="summarization")
    options.add_argument("--skip", type=int, default=30)
    options.add_argument("--width", type=int, default=4)
    runs = run(measure, options.parse_args(argv))
    found = ResultTable(["search", "tok/s", "times as fast", "single prompts", "rounds"])
    plain = [middle(each.found.seconds for each in both[False]) for both in runs]
    for speculated, name in ((False, "plain"), (True, "speculated")):
        times = [middle(each.found.seconds for each in both[speculated]) for both in runs]
        tokens = sum(len(both[speculated][0].found.tokens) for both in runs)
        rounds = sum(both[speculated][0].rounds for both in runs)
        single = [before / after for before, after in zip(plain, times, strict=True)]
        gain = sum(plain) / sum(times)
        found.add(name, tokens / sum(times), gain, (min(single), max(single)), rounds)
    return found


if __name__ == "__main__":
    show(table)
