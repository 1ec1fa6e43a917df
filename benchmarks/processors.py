"""Every instruction set of this machine beside llama.cpp's server held to the same instructions.

    python -m benchmarks.processors --weights DIRECTORY --install [--before CHECKOUT]

For each format, the servers of all instruction sets, and llama.cpp's, run side by side and are
asked in turn; figures are medians over the repeats. DIRECTORY is what benchmarks.peer_weights
wrote; without it llama.cpp stays out. `--install` builds llama.cpp's servers, natively and for AVX2
alone. `--before` measures another checkout's server too, whatever it runs on. Printed are

    ready       seconds from the start of the process to the first that is served
    step/floor  a step of one token over reading all weights once
    tok/s       of 1, 4, 16 users together, drafts off and on
    ratios      to llama.cpp, to the torch fallback (`--isas avx2,none`), to the other checkout
    texts       whether the instruction sets give the same ones
"""

import argparse
import asyncio
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median

from benchmarks.chat_load import Answers, ask_all, question
from benchmarks.isa_servers import OFF, ON, Entrant, entrants, peer_of, running
from draftwerk.model.native.isa import NONE, VARIABLE, available

FORMATS = ("bf16", "int8", "int4", "fp32")
WARM_TOKENS = 16
EQUALITY = (
    {"temperature": 0},
    {"temperature": 0.7, "top_p": 0.9},
    {"temperature": 1},
    {"temperature": 1, "top_k": 40, "min_p": 0.02},
)
EQUALITY_FROM, WARM_FROM = 10_000, 20_000
"""Numbers of questions that are asked nowhere else."""


async def measure(given: argparse.Namespace, dtype: str) -> list[Entrant]:
    """Start the servers of one format one by one, then ask all of them in turn."""
    found = entrants(given, dtype)
    async with AsyncExitStack() as stack:
        for one in found:
            await stack.enter_async_context(running(one, Path(given.logs) / dtype))
            await _ask(one, given, OFF, WARM_FROM, max(given.users), WARM_TOKENS)
        first = 0
        for repeat in range(given.repeats):
            for users in given.users:
                for one in reversed(found) if repeat % 2 else found:
                    for number, drafts in enumerate(one.drafts):
                        # The same questions for all servers, and none twice for any of them.
                        begin = first + number * users * given.waves
                        answers = await _ask(one, given, drafts, begin, users, given.tokens)
                        one.rates.setdefault((users, drafts), []).append(answers.rate)
                first += 2 * users * given.waves
        for one in found:
            if one.peer_level is None:
                one.texts = await _compared_texts(one, given)
    return found


async def _ask(
    one: Entrant, given: argparse.Namespace, drafts: str, first: int, users: int, tokens: int
) -> Answers:
    numbers = range(first, first + users * given.waves)
    bodies = {number: question(number, tokens, one.fields(drafts)) for number in numbers}
    return await ask_all(one.url, bodies, users)


async def _compared_texts(one: Entrant, given: argparse.Namespace) -> dict[int, str]:
    """Return the texts of one set of questions, at several temperatures, drafts on."""
    bodies = {
        number: question(
            number, given.tokens, {**EQUALITY[number % len(EQUALITY)], **one.fields(ON)}
        )
        for number in range(EQUALITY_FROM, EQUALITY_FROM + given.texts)
    }
    return (await ask_all(one.url, bodies, max(given.users))).texts


def floors(given: argparse.Namespace, dtype: str) -> dict[str, float]:
    """Return a step over its floor for each instruction set, medians over the repeats."""
    found: dict[str, list[float]] = {isa: [] for isa in given.isas if isa != NONE}
    for _ in range(given.repeats):
        for isa, ratios in found.items():
            command = [sys.executable, "-m", "benchmarks.step_floor", dtype]
            said = subprocess.run(
                command,
                env={**os.environ, VARIABLE: isa},
                capture_output=True,
                text=True,
                check=True,
            )
            step, floor = map(float, said.stdout.split())
            ratios.append(step / floor)
    return {isa: median(ratios) for isa, ratios in found.items()}


def report(given: argparse.Namespace, dtype: str, found: Sequence[Entrant]) -> None:
    """Print one format's table, and what is compared with what."""
    by_name = {one.name: one for one in found}
    ratios = floors(given, dtype)
    print(f"\n{dtype}: tokens a second by users, drafts off / on")
    columns = "".join(f"{users:>16d}" for users in given.users)
    print(f"  {'':24s}{'ready s':>8s}{'step/floor':>12s}{columns}")
    for one in found:
        floor = f"{ratios[one.name]:.2f}" if one.name in ratios else "-"
        cells = "".join(f"{_cell(one, users):>16s}" for users in given.users)
        print(f"  {one.name:24s}{one.ready_s:8.1f}{floor:>12s}{cells}")
    for one in found:
        if one.name in given.isas:
            others = [peer_of(one.name, found), by_name.get("before"), by_name.get(NONE)]
            for other in others:
                if other is not None and other is not one:
                    print(f"  {one.name} / {other.name}: {_ratios(given, one, other)}")
    own = [one for one in found if one.name in given.isas and one.name != NONE]
    for one in own[1:]:
        same = sum(one.texts[number] == text for number, text in own[0].texts.items())
        print(f"  texts of {one.name} and {own[0].name}: {same} of {len(own[0].texts)} equal")
    sys.stdout.flush()


def _cell(one: Entrant, users: int) -> str:
    return " / ".join(f"{one.rate(users, drafts):.0f}" for drafts in one.drafts)


def _ratios(given: argparse.Namespace, one: Entrant, other: Entrant) -> str:
    """Return the ratios of rates by users: drafts as the other has them, or off beside none."""
    words: list[str] = []
    for drafts in one.drafts:
        beside = drafts if drafts in other.drafts else OFF
        each = (one.rate(users, drafts) / other.rate(users, beside) for users in given.users)
        words.append(f"drafts {drafts} " + ", ".join(f"{ratio:.2f}" for ratio in each))
    return "; ".join(words)


def _names(text: str) -> list[str]:
    return [name for name in text.split(",") if name]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    default = [isa.name for isa in available()]
    parser.add_argument(
        "--isas", type=_names, default=default, help=f"default: {','.join(default)}"
    )
    parser.add_argument("--formats", type=_names, default=list(FORMATS))
    parser.add_argument("--users", type=lambda text: [*map(int, _names(text))], default=[1, 4, 16])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--waves", type=int, default=2, help="questions of each user in a repeat")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--texts", type=int, default=16, help="how many are compared")
    parser.add_argument("--weights", help="what benchmarks.peer_weights wrote, for llama.cpp")
    parser.add_argument("--venvs", default=".peers", help="where llama.cpp's servers are installed")
    parser.add_argument("--install", action="store_true", help="install those that are not there")
    parser.add_argument("--before", help="another checkout, set up, to compare with")
    parser.add_argument("--logs", default="results/processors")
    given = parser.parse_args()
    for dtype in given.formats:
        try:
            report(given, dtype, asyncio.run(measure(given, dtype)))
        except (ValueError, RuntimeError) as error:
            print(f"{dtype}: {error}", flush=True)


if __name__ == "__main__":
    main()
