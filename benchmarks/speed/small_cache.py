"""What admission by expected lengths saves where the cache is small.

    python -m benchmarks.speed.small_cache [--count 400] [--users 48]    # on virtual time
    python -m benchmarks.speed.small_cache --real [--count 96] [--users 32] [--blocks 120]

With `--real` the engine of `draftwerk serve` answers questions over a cache of a few blocks; its
texts end where the model ends them, and that is all that is learnt of their lengths. Otherwise the
real scheduler runs over a device of which only the time matters. Prompts and answers are as
long as in chats (log-normal: half of the prompts under 60 tokens and half of the answers under 200,
a tenth over 300 and 700); the pool holds a fifth of what all users want at once. With `--kinds`
half of the requests are of a kind whose answers are ten times as long as the others', and prompts
of a kind begin alike or, hidden, do not.
"""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from math import exp
from random import Random
from statistics import quantiles
from time import perf_counter
from zlib import crc32

import anyio

from benchmarks.support.bench import ResultTable, parser, run, show
from benchmarks.support.engine import chat
from benchmarks.support.prompts import by_category
from benchmarks.support.virtual_server import VirtualServer, VirtualText
from draftwerk.actors.engine import running
from draftwerk.actors.messages import Delta
from draftwerk.api.core.config import Settings
from draftwerk.assembly.build import engine_parts
from draftwerk.assembly.loading.loaded_models import load_models
from draftwerk.cache.blocks import BlockPool
from draftwerk.speculative.costs.work import StepLoad
from draftwerk.speculative.requests.request import Options
from draftwerk.speculative.sampling.params import Sampling
from draftwerk.speculative.scheduler.lengths import TextLengths
from draftwerk.speculative.scheduler.scheduler import RoundLimits, Scheduler

BLOCK, CONTEXT = 16, 4096
STEP_S, TOKEN_S = 0.008, 0.0004
"""Of a step, and of each token in it: about those of the default model on two cores."""


def step_ms(load: StepLoad) -> float:
    """Return what a step takes."""
    return 1e3 * (STEP_S + TOKEN_S * load.tokens)


def chats(count: int, seed: int, kinds: bool, shown: bool) -> list[VirtualText]:
    """Return requests of log-normal lengths."""
    rng = Random(seed)

    def length(median: float, spread: float, most: int) -> int:
        return max(2, min(most, round(median * exp(rng.gauss(0.0, spread)))))

    def text(number: int) -> VirtualText:
        if not kinds:
            return VirtualText(length(60, 1.25, 1500), length(200, 1.0, 2000))
        answer = length((60, 600)[number % 2], 0.5, 2000)
        return VirtualText(length(60, 1.25, 1500), answer, kind=shown * (1 + number % 2))

    found = [text(number) for number in range(count)]
    rng.shuffle(found)
    return found


def add_row(
    found: ResultTable, given: argparse.Namespace, name: str, expects: bool, shown: bool = False
) -> None:
    """Add what one rule of admission makes of the requests."""
    texts = chats(given.count, given.seed, given.kinds, shown)
    wanted = sum(text.prompt + text.answer for text in texts) / len(texts) * given.users
    blocks = max(CONTEXT // BLOCK, round(wanted / given.share / BLOCK))
    scheduler = Scheduler(
        BlockPool(blocks, BLOCK),
        RoundLimits(rows_max=64, draft_max=0),
        lengths=TextLengths() if expects else None,
    )
    server = VirtualServer(scheduler, texts, step_ms, CONTEXT, given.users)
    server.run()
    stats = scheduler.stats
    firsts = quantiles((text.first_s for text in texts), n=100)
    pauses = quantiles((text.pause_s for text in texts), n=100)
    found.add(
        name,
        stats.generated_tokens / server.now_s,
        stats.preemptions,
        stats.recomputed_tokens / stats.generated_tokens,
        (firsts[49], firsts[98]),
        (pauses[49], pauses[98]),
    )


async def real_cells(given: argparse.Namespace, expects: bool) -> list[object]:
    """Return what one rule of admission makes of questions to a real engine."""
    settings = Settings(model=given.model, dtype=given.dtype, spare="off")
    questions = by_category(None, given.count)["questions"]
    waiting, tokens, longest_s = iter(questions), 0, list[float]()
    async with load_models(settings, print) as models:
        parts = await engine_parts(models, settings)
        small = replace(parts, expects_lengths=expects, block_count=given.blocks)
        async with running(small) as engine:

            async def user() -> None:
                nonlocal tokens
                for question in waiting:
                    sampling = Sampling(temperature=0.7, seed=crc32(question.encode()))
                    options = Options(sampling=sampling, tokens_max=given.tokens)
                    times_s: list[float] = []
                    async with engine.generate(
                        chat(question), options, request_id=question
                    ) as all_:
                        async for event in all_:
                            if isinstance(event, Delta):
                                times_s.append(perf_counter())
                                tokens += len(event.tokens)
                    longest_s.append(max((b - a for a, b in pairwise(times_s)), default=0.0))

            begun = perf_counter()
            async with anyio.create_task_group() as users:
                for _ in range(given.users):
                    users.start_soon(user)
            seconds, counts = perf_counter() - begun, engine.snapshot().counts
    pauses = quantiles(longest_s, n=100)
    share = counts.recomputed_tokens / max(1, counts.generated_tokens)
    return [tokens / seconds, counts.preemptions, share, (pauses[49], pauses[98])]


def real_table(given: argparse.Namespace) -> ResultTable:
    """Measure; a row for each rule of admission."""
    columns = ("admitted by", "tok/s", "preempted", "recomputed / generated")
    found = ResultTable([*columns, "longest pause p50, p99, s"])
    for rule in given.rules:
        found.add(rule, *run(real_cells, given, rule == "expected"))
    return found


def table(argv: Sequence[str] | None = None) -> ResultTable:
    """Simulate; a row for admission by known tokens and one by expected tokens."""
    options = parser(__doc__, model="", dtype="int8", count=400, tokens=320, seed=1)
    options.add_argument("--users", type=int, default=48)
    options.add_argument("--share", type=float, default=5.0, help="of what is wanted, one part in")
    options.add_argument("--kinds", action="store_true", help="of two lengths")
    options.add_argument("--real", action="store_true", help="with a model, not on virtual time")
    options.add_argument("--blocks", type=int, default=120, help="of the real cache")
    options.add_argument("--rules", nargs="+", default=["known", "expected"])
    given = options.parse_args(argv)
    if given.real:
        return real_table(given)
    columns = ("admitted by", "tok/s", "preempted", "recomputed / generated", "TTFT p50, p99, s")
    found = ResultTable([*columns, "longest pause p50, p99, s"])
    add_row(found, given, "known", expects=False)
    add_row(found, given, "expected", expects=True)
    if given.kinds:
        add_row(found, given, "expected, by kind", expects=True, shown=True)
    return found


if __name__ == "__main__":
    show(table)
