"""Beam search, speculated and plain, on the same prompts in one engine.

    python -m benchmarks.drafting.beams spec_bench.jsonl --prompts 20

Each line of the file has `turns`, the first of which is asked, and maybe a `category`. The two ways
alternate, so that a change of the machine's pace touches both, and medians count; every text must
be the same.
"""

import argparse
import json
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import NamedTuple

import anyio

from benchmarks.support.engine import chat, engine, generate
from draftwerk.actors.engine import Engine
from draftwerk.api.core.config import Settings
from draftwerk.speculative.request import Options, Speculation
from draftwerk.speculative.sampling.params import Sampling


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

    text: str
    tokens: int
    seconds: float
    rounds: int


async def one(
    running: Engine, question: str, arguments: argparse.Namespace, speculated: bool, name: str
) -> BeamRun:
    """Search once."""
    rounds = running.snapshot().rounds
    begun = perf_counter()
    text, count = await generate(running, chat(question), options(arguments, speculated), name)
    return BeamRun(text, count, perf_counter() - begun, running.snapshot().rounds - rounds)


async def main(arguments: argparse.Namespace) -> None:
    rows = [json.loads(line) for line in arguments.path.open()]
    wanted = [row for row in rows if row.get("category", "") in ("", arguments.category)]
    questions = [row["turns"][0] for row in wanted[arguments.skip :][: arguments.prompts]]
    async with engine(Settings(dtype=arguments.dtype)) as running:
        await one(running, questions[-1], arguments, True, "warm")
        seconds, tokens, rounds, ratios = [0.0, 0.0], 0, [0, 0], list[float]()
        print("prompt  tokens  plain s  rounds  speculated s  rounds  ratio")
        for number, question in enumerate(questions):
            # The prompt is read once beforehand: what is compared is the search.
            reading = argparse.Namespace(**vars(arguments) | {"tokens": 1})
            await one(running, question, reading, False, f"{number}:read")
            ways: list[list[BeamRun]] = [[], []]
            for repeat in range(arguments.repeats):
                for speculated, runs in enumerate(ways):
                    name = f"{number}:{repeat}:{speculated}"
                    runs.append(await one(running, question, arguments, bool(speculated), name))
            texts = {run.text for runs in ways for run in runs}
            assert len(texts) == 1, f"prompt {number}: another text when speculated"
            spent = [median(run.seconds for run in runs) for runs in ways]
            taken = [runs[0].rounds for runs in ways]
            for way in range(2):
                seconds[way] += spent[way]
                rounds[way] += taken[way]
            length = ways[0][0].tokens
            tokens += length
            ratios.append(spent[0] / spent[1])
            print(
                f"{number:6d} {length:7d} {spent[0]:8.2f} {taken[0]:7d} {spent[1]:13.2f} "
                f"{taken[1]:7d} {ratios[-1]:6.2f}",
                flush=True,
            )
        print(
            f"width {arguments.width}: plain {tokens / seconds[0]:.1f} tok/s, "
            f"speculated {tokens / seconds[1]:.1f} tok/s: {seconds[0] / seconds[1]:.2f} times "
            f"as fast ({min(ratios):.2f} to {max(ratios):.2f}), in {rounds[1]} rounds instead of "
            f"{rounds[0]}"
        )


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("path", type=Path)
    parser.add_argument("--category", default="summarization")
    parser.add_argument("--prompts", type=int, default=10)
    parser.add_argument(
        "--skip", type=int, default=30, help="the first are left out: guesses were tuned on them"
    )
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--width", type=int, default=4)
    parser.add_argument("--dtype", default="bf16")
    return parser.parse_args()


if __name__ == "__main__":
    anyio.run(main, parse(), backend_options={"use_uvloop": True})
