"""Steps of a model, and how many steps of one token each takes.

    python -m benchmarks.steps [--model MODEL] [--dtype stored] [--steps T1 T8 T16 u16 p512]
        [--before LIBRARY] [--threads 1]

`T8` is a step of 8 tokens of a row behind 400 others, `u16` one of 16 such rows, `p512` a prompt of
512 tokens. All take turns. The kernels of `--before`, a library that another commit compiled, take
turns with this commit's in the same process, and must give the same bits: the ratio is the median
of the pairs'. Of one thread CPU time is measured, which other programs hardly lengthen.
"""

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from statistics import median
from time import perf_counter, process_time
from unittest.mock import patch

import torch

from benchmarks.kernels import as_served, many_rows, one_row, pages_for, times_in_turn
from benchmarks.support.bench import ResultTable, parser, show
from draftwerk.model.batch.batch import Batch
from draftwerk.model.checkpoint.loader import load
from draftwerk.model.native import library
from draftwerk.model.native.native_shape import FORMATS
from draftwerk.model.native.pool import Pool

CONTEXT = 400
NOW, BEFORE = "now", "before"


def batch(step: str) -> Batch:
    """Return the batch that a step's name means."""
    kind, count = step[0], int(step[1:])
    if kind == "u":
        return many_rows(count, CONTEXT)
    return one_row(count, CONTEXT, count) if kind == "T" else one_row(count, count, 1)


def pools(given: argparse.Namespace) -> dict[str, Pool]:
    """Return the threads of each build of the kernels."""
    found = {NOW: Pool(given.threads)}
    if given.before:
        with patch.object(library, "library_path", lambda _: given.before):
            found[BEFORE] = Pool(given.threads, BEFORE)
    return found


def check_equal(runs: Sequence[Callable[[], torch.Tensor]]) -> None:
    """Raise ValueError unless all runs give the same bits."""
    first, *others = [run() for run in runs]
    if not all(torch.equal(first, other) for other in others):
        raise ValueError("the kernels give different bits")


def table(argv: Sequence[str] | None = None) -> ResultTable:
    """Measure; a row for each step."""
    options = parser(__doc__, model="", repeats=15)
    options.add_argument("--dtype", choices=[*FORMATS], default="stored")
    options.add_argument(
        "--steps", nargs="+", default=["T1", "T2", "T4", "T8", "T16", "u16", "p512"]
    )
    options.add_argument("--threads", type=int, help="all without it")
    options.add_argument("--before", metavar="LIBRARY", help="as the cache has them: native-*.so")
    given = options.parse_args(argv)
    model = load(given.model or None, None, keeps_blocks=given.dtype == "stored")
    batches = {step: batch(step) for step in given.steps}
    blocks = max(int(b.block_tables.max()) for b in batches.values()) + 1
    forwards = [as_served(model, given.dtype, pool) for pool in pools(given).values()]
    pages = [pages_for(model.config, forward, max(64, blocks)) for forward in forwards]
    clock = process_time if given.threads == 1 else perf_counter
    found = ResultTable(
        ["step", "ms", "least", "÷ first", *(["before ÷ now"] if given.before else [])]
    )
    first = 0.0
    for step, tokens in batches.items():
        runs = [partial(forward, tokens, own) for forward, own in zip(forwards, pages, strict=True)]
        check_equal(runs)
        now, *before = times_in_turn(runs, given.repeats, clock)
        first = first or median(now)
        ratios = [median(b / n for b, n in zip(other, now, strict=True)) for other in before]
        found.add(step, median(now), min(now), median(now) / first, *ratios)
    return found


if __name__ == "__main__":
    show(table)
