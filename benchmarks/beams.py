"""Beam search, speculated and plain, on the same prompts in one engine; `--help` has the knobs.

Each line of the file has `turns`, the first of which is asked, and maybe a `category`. The two ways
alternate, prompt by prompt, so that a change of the machine's pace touches both; every text must be
the same.
"""

import argparse
import json
from pathlib import Path
from time import perf_counter

import anyio

from actors.engine import Engine
from actors.messages import Options, Speculation
from api.config import Settings
from benchmarks.server import chat, engine, generate
from speculative.sampling import Sampling


def options(arguments: argparse.Namespace, speculated: bool) -> Options:
    return Options(
        sampling=Sampling(temperature=0.0),
        tokens_max=arguments.tokens,
        beam_width=arguments.width,
        early_stopping=True,
        speculation=Speculation(enabled=speculated),
    )


async def one(
    running: Engine, question: str, arguments: argparse.Namespace, speculated: bool, name: str
) -> tuple[str, int, float, int]:
    """Return the text, its tokens, the seconds and the rounds that it took."""
    rounds = running.snapshot().rounds
    begun = perf_counter()
    text, count = await generate(running, chat(question), options(arguments, speculated), name)
    return text, count, perf_counter() - begun, running.snapshot().rounds - rounds


async def main(arguments: argparse.Namespace) -> None:
    rows = [json.loads(line) for line in arguments.path.open()]
    wanted = [row for row in rows if row.get("category", "") in ("", arguments.category)]
    questions = [row["turns"][0] for row in wanted[arguments.skip :][: arguments.prompts]]
    async with engine(Settings(dtype=arguments.dtype)) as running:
        await one(running, questions[-1], arguments, True, "warm")
        seconds, tokens, rounds = [0.0, 0.0], [0, 0], [0, 0]
        print("prompt  tokens  plain s  rounds  speculated s  rounds  ratio")
        for number, question in enumerate(questions):
            # The prompt is read once beforehand: what is compared is the search.
            await one(
                running,
                question,
                argparse.Namespace(**vars(arguments) | {"tokens": 1}),
                False,
                f"{number}:read",
            )
            found = [
                await one(running, question, arguments, speculated, f"{number}:{speculated}")
                for speculated in (False, True)
            ]
            assert found[0][0] == found[1][0], f"prompt {number}: another text when speculated"
            for way, (_, count, spent, steps) in enumerate(found):
                seconds[way] += spent
                tokens[way] += count
                rounds[way] += steps
            (_, count, slow, plain), (_, _, fast, speculated) = found
            print(
                f"{number:6d} {count:7d} {slow:8.2f} {plain:7d} {fast:13.2f} {speculated:7d} "
                f"{slow / fast:6.2f}",
                flush=True,
            )
        print(
            f"width {arguments.width}: plain {tokens[0] / seconds[0]:.1f} tok/s, "
            f"speculated {tokens[1] / seconds[1]:.1f} tok/s: {seconds[0] / seconds[1]:.2f} times "
            f"as fast, in {rounds[1]} rounds instead of {rounds[0]}"
        )


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("path", type=Path)
    parser.add_argument("--category", default="summarization")
    parser.add_argument("--prompts", type=int, default=10)
    parser.add_argument("--skip", type=int, default=10, help="the first ones were tuned on")
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--width", type=int, default=4)
    parser.add_argument("--dtype", default="bf16")
    return parser.parse_args()


if __name__ == "__main__":
    anyio.run(main, parse(), backend_options={"use_uvloop": True})
