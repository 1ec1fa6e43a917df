"""One seed, one text, as a matrix: every sampling parameter times every way of drafting.

`python -m validation.matrix --output FILE` runs it on the default model, about as many minutes as
there are distributions; `--samplings` runs a part of it. Each text is decoded alone
without drafts first; then all at once, with drafts, in a pool so small that some are preempted,
over a prefix that they share. Byte equality is asserted, and so is that drafts were accepted and
rejected, that sequences were preempted, and that prefixes were found.
"""

import argparse
import json
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import anyio
import msgspec

from draftwerk.actors.engine import Engine
from draftwerk.actors.events.client_events import Delta, Ended, Started
from draftwerk.model.checkpoint.hub import locate
from draftwerk.model.checkpoint.info import read_info
from draftwerk.model.checkpoint.model_options import ModelOptions
from draftwerk.model.step.draft_runner import DraftRunner
from draftwerk.speculative.drafting.proposer import Proposer
from draftwerk.speculative.request import Options, Speculation
from draftwerk.speculative.sampling import Sampling
from tests.support.proposing import Reckless
from tests.support.runners import build_runner
from tests.support.toy import ToyText
from validation.forced_drafts import SOURCES, Everything, Oracle
from validation.matrix_engines import BLOCK_SIZE, PROMPTS, DraftModel, Matrix
from validation.samplings import SAMPLINGS

TOKENS = 24


async def decode(
    engine: Engine,
    prompt: tuple[int, ...],
    sampling: Sampling,
    speculation: Speculation,
    name: str,
    tokens_max: int = TOKENS,
) -> list[int]:
    """Return one request's tokens."""
    options = Options(sampling=sampling, tokens_max=tokens_max, speculation=speculation)
    tokens: list[int] = []
    async with engine.generate(prompt, options, request_id=name) as events:
        async for event in events:
            if isinstance(event, Started):
                continue
            assert isinstance(event, Delta | Ended), event
            if isinstance(event, Delta):
                tokens.extend(event.tokens)
    return tokens


def predicted(answer: list[int]) -> str:
    """Return an answer as a client might expect it: right but for a token here and there."""
    guess = [token if n % 7 else 3 for n, token in enumerate(answer)]
    return "".join(f"w{token} " for token in guess)


async def check_distribution(
    matrix: Matrix, sampling: Sampling, ways: list[str]
) -> dict[str, Counter[str]]:
    """Decode all prompts plainly, then in every way; returns what happened, by way."""
    prompts = matrix.prompts()
    samplings = [msgspec.structs.replace(sampling, seed=number) for number in range(PROMPTS)]
    answers: list[list[int]] = []
    async with matrix.engine(256, partial(Proposer, ())) as roomy:
        for number, prompt in enumerate(prompts):
            off = Speculation(enabled=False)
            answers.append(await decode(roomy, prompt, samplings[number], off, str(number)))
    found: dict[str, Counter[str]] = {}
    for way in ways:
        found[way] = await check_way(matrix, way, prompts, samplings, answers)
    return found


async def check_way(
    matrix: Matrix,
    way: str,
    prompts: list[tuple[int, ...]],
    samplings: list[Sampling],
    answers: list[list[int]],
) -> Counter[str]:
    """Decode all prompts at once in one way; every text must be the plain one."""
    known = dict(zip(prompts, answers, strict=True))
    proposer, model = drafting(matrix, way, known)
    async with matrix.engine(16, proposer, model, run_ahead=way in BESIDE) as tight:
        for turn in range(2):  # the second time the store and the prefix cache hold the answers
            texts: list[list[int]] = [[] for _ in prompts]

            async def ask(number: int, turn: int = turn, texts: list[list[int]] = texts) -> None:
                speculation = Speculation(
                    enabled=way != "off",
                    prediction=predicted(answers[number]) if way == "prediction" else "",
                )
                texts[number] = await decode(
                    tight, prompts[number], samplings[number], speculation, f"{turn}-{number}"
                )

            async with anyio.create_task_group() as tasks:
                for number in range(PROMPTS):
                    tasks.start_soon(ask, number)
            assert texts == answers, (way, samplings[0])
        tight.check()
        snapshot = tight.snapshot()
    return Counter(
        accepted=snapshot.counts.accepted_tokens,
        rejected=snapshot.counts.draft_tokens - snapshot.counts.accepted_tokens,
        preemptions=snapshot.counts.preemptions,
        prefix_hits=snapshot.counts.prefix_hits,
    )


def drafting(
    matrix: Matrix, way: str, known: dict[tuple[int, ...], list[int]]
) -> tuple[Callable[[], Proposer], DraftModel | None]:
    """Return the proposer and the draft model of one way of drafting."""
    if way in ("off", "prediction"):
        return partial(Proposer, policy=Everything, methods=()), None
    if way in SOURCES:
        return partial(Proposer, policy=Everything, methods=(way,)), None
    if way in ("all", AHEAD):
        return partial(Proposer, policy=Everything, methods=SOURCES), None
    if way == MODEL:
        # The target itself, with pages of its own.
        drafter = DraftRunner(build_runner(matrix.options).parts)
        return partial(Proposer, policy=Everything, methods=("draft",)), drafter.propose
    oracle = Oracle(known, matrix.text.vocab_size, way)
    return partial(Reckless, oracle.propose), None


AHEAD, MODEL = "all, run ahead", "draft model"
BESIDE = (AHEAD, MODEL)
"""Ways in which the target drafts, and two rounds are under way."""
WAYS = [
    "off",
    *SOURCES,
    "prediction",
    "all",
    AHEAD,
    MODEL,
    "always right",
    "always wrong",
    "random trees",
]


async def check(
    matrix: Matrix,
    samplings: Mapping[str, Sampling] = SAMPLINGS,
    progress: Callable[[str], None] = lambda _: None,
) -> dict[str, dict[str, Counter[str]]]:
    """Run the matrix for some distributions; returns counters by distribution and way."""
    found: dict[str, dict[str, Counter[str]]] = {}
    for name, sampling in samplings.items():
        found[name] = await check_distribution(matrix, sampling, WAYS)
        progress(name)
    return found


def totals(found: dict[str, dict[str, Counter[str]]]) -> dict[str, Counter[str]]:
    """Return the counters by way, and assert that what was to be tested happened."""
    by_way = {
        way: sum((samplings[way] for samplings in found.values()), Counter[str]()) for way in WAYS
    }
    for way, counter in by_way.items():
        assert counter["preemptions"] > 0, (way, counter)
        assert counter["prefix_hits"] > 0, (way, counter)
    assert by_way["off"]["accepted"] + by_way["off"]["rejected"] == 0
    assert by_way["always right"]["accepted"] > 0
    assert by_way["always wrong"]["accepted"] == 0 < by_way["always wrong"]["rejected"]
    for way in WAYS:
        if way not in ("off", "always wrong"):
            assert by_way[way]["accepted"] > 0, (way, by_way[way])
        if way in (*SOURCES, "prediction", "all", "random trees"):
            assert by_way[way]["rejected"] > 0, (way, by_way[way])
    return by_way


class DefaultWords(ToyText):
    """The default model's vocabulary as words: ids in, ids out."""

    vocab_size = 49152


def report(
    arguments: argparse.Namespace, found: dict[str, dict[str, Counter[str]]]
) -> dict[str, object]:
    """Return what is kept of a run."""
    return {
        "model": read_info(locate(None)).name,
        "dtype": arguments.dtype,
        "samplings": {name: msgspec.to_builtins(SAMPLINGS[name]) for name in found},
        "ways": WAYS,
        "requests_at_once": PROMPTS,
        "texts_compared": len(found) * len(WAYS) * 2 * PROMPTS,
        "texts_that_differ": 0,  # the first would have ended the run
        "totals": totals(found),
        "by_law": found,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dtype", default="fp32")
    parser.add_argument(
        "--samplings", nargs="+", choices=SAMPLINGS, default=list(SAMPLINGS), metavar="SAMPLING"
    )
    parser.add_argument("--threads", type=int, default=0, help="0: one per core")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    options = ModelOptions(
        dtype=arguments.dtype,
        draft_head="auto",
        threads=arguments.threads,
        block_count=256,
        block_size=BLOCK_SIZE,
    )
    matrix = Matrix(options, DefaultWords(), (2,))
    progress = partial(print, flush=True)
    samplings = {name: SAMPLINGS[name] for name in arguments.samplings}
    found = anyio.run(check, matrix, samplings, progress)
    for way, counter in totals(found).items():
        print(f"{way:14s} " + "  ".join(f"{key} {value}" for key, value in counter.items()))
    kept = report(arguments, found)
    print(f"{kept['texts_compared']} texts, every one equal to its plain one")
    if arguments.output:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
