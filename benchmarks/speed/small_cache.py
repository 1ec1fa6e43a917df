"""What admission by expected lengths saves where the cache is small, on virtual time.

    python -m benchmarks.speed.small_cache [--requests 400] [--users 48]

The real scheduler runs over a device of which only the time matters. Prompts and answers are as
long as in chats (log-normal: half of the prompts under 60 tokens and half of the answers under 200,
a tenth over 300 and 700); the pool holds a fifth of what all users want at once. Printed are, for
admission by known tokens and by expected ones,

    tok/s        generated tokens a second of virtual time
    preempted    sequences that lost their blocks
    recomputed   tokens computed again, for each one generated
    TTFT, pause  p50 and p99 of the time to the first token and of a text's longest pause, seconds
"""

import argparse
from math import exp
from random import Random
from statistics import quantiles

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


def chats(count: int, seed: int) -> list[VirtualText]:
    """Return requests of log-normal lengths."""
    rng = Random(seed)

    def length(median: float, spread: float, most: int) -> int:
        return max(2, min(most, round(median * exp(rng.gauss(0.0, spread)))))

    return [VirtualText(length(60, 1.25, 1500), length(200, 1.0, 2000)) for _ in range(count)]


def measure(given: argparse.Namespace, expects: bool) -> str:
    """Return one line of the table."""
    texts = chats(given.requests, given.seed)
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
    return (
        f"{'expected' if expects else 'known':9s} {stats.generated_tokens / server.now_s:7.1f} "
        f"{stats.preemptions:10d} {stats.recomputed_tokens / stats.generated_tokens:11.3f} "
        f"{firsts[49]:6.2f} {firsts[98]:6.2f} {pauses[49]:6.2f} {pauses[98]:6.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument("--users", type=int, default=48)
    parser.add_argument("--share", type=float, default=5.0, help="of what is wanted, one part in")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    print("admission   tok/s  preempted  recomputed   TTFT p50, p99  pause p50, p99")
    for expects in (False, True):
        print(measure(given, expects), flush=True)


if __name__ == "__main__":
    main()
