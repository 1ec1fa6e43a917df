"""What admission by expected lengths saves where the cache is small, on virtual time.

    python -m benchmarks.speed.small_cache [--count 400] [--users 48]

The real scheduler runs over a device of which only the time matters. Prompts and answers are as
long as in chats (log-normal: half of the prompts under 60 tokens and half of the answers under 200,
a tenth over 300 and 700); the pool holds a fifth of what all users want at once. With `--kinds`
half of the requests are of a kind whose answers are ten times as long as the others', and prompts
of a kind begin alike or, hidden, do not.
"""

import argparse
from collections.abc import Sequence
from math import exp
from random import Random
from statistics import quantiles

from benchmarks.support.bench import ResultTable, parser, show
from benchmarks.support.virtual_server import VirtualServer, VirtualText
from draftwerk.cache.blocks import BlockPool
from draftwerk.speculative.costs.work import StepLoad
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


def table(argv: Sequence[str] | None = None) -> ResultTable:
    """Simulate; a row for admission by known tokens and one by expected tokens."""
    options = parser(__doc__, count=400, seed=1)
    options.add_argument("--users", type=int, default=48)
    options.add_argument("--share", type=float, default=5.0, help="of what is wanted, one part in")
    options.add_argument("--kinds", action="store_true", help="of two lengths")
    given = options.parse_args(argv)
    columns = ("admitted by", "tok/s", "preempted", "recomputed / generated", "TTFT p50, p99, s")
    found = ResultTable([*columns, "longest pause p50, p99, s"])
    add_row(found, given, "known", expects=False)
    add_row(found, given, "expected", expects=True)
    if given.kinds:
        add_row(found, given, "expected, by kind", expects=True, shown=True)
    return found


if __name__ == "__main__":
    show(table)
