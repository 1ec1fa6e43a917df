"""How well T(tokens, context) is predicted, before and after steps were seen.

    python -m benchmarks.speed.step_model [--dtypes bf16,int8,int4] [--repeats 5] [--keep FILE]
    python -m benchmarks.speed.step_model --kept FILE

Prints predicted / measured of one row of so many tokens behind so many others (a prompt's chunk, or
a draft), and of rows that decode one token each. "at start" knows what a server measures before its
first request; "learnt" has seen steps of every second cell, and is asked for the others. Times are
the least of interleaved measurements, on the default model's shape. What `--keep` has written is
printed again with `--kept`, to compare models of the cost on the same measurements.
"""

import argparse
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import NamedTuple

import msgspec
import torch

from benchmarks.kernels import default_shape, random_weights
from draftwerk.model.batch.batch import Batch
from draftwerk.model.batch.builder import BatchBuilder
from draftwerk.model.native.forward import FORMATS, NativeForward
from draftwerk.model.native.pool import Pool
from draftwerk.model.native.trials import native_roofline
from draftwerk.model.process.role import WARM_UP_SIZES
from draftwerk.model.reference.kv_pages import allocate
from draftwerk.speculative.costs.roofline import Roofline
from draftwerk.speculative.costs.step_cost import StepCost
from draftwerk.speculative.costs.work import StepLoad
from draftwerk.speculative.protocol.rounds import NO_DRAFT

TOKENS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
ROWS = (4, 16, 64)
CONTEXTS = (64, 256, 1024, 4096)
BLOCK_SIZE = 16
BLOCKS = 64 * (4096 // BLOCK_SIZE + 1)
GOAL = 0.15
LOGITS_MAX = 64
"""Larger rows are prompts': logits of their last token alone."""
LEARNT_STEPS = 400


class StepCell(NamedTuple):
    """One size of step."""

    rows: int
    tokens: int
    """Of each row."""
    context: int

    def __str__(self) -> str:
        return f"{self.rows:2d} x {self.tokens:3d} behind {self.context:4d}"


CELLS = [
    StepCell(rows, tokens, context)
    for context in CONTEXTS
    for rows, tokens in [*((1, tokens) for tokens in TOKENS), *((rows, 1) for rows in ROWS)]
]
STARTS = [StepCell(1, size.tokens, size.context) for size in WARM_UP_SIZES]
"""What a server measures before its first request."""


def batch_of(cell: StepCell) -> tuple[Batch, StepLoad]:
    """Return the step's batch, each row with blocks of its own, and its load."""
    builder = BatchBuilder(BLOCK_SIZE)
    width = -(-(cell.context + cell.tokens) // BLOCK_SIZE)
    for row in range(cell.rows):
        blocks = tuple(range(row * width, (row + 1) * width))
        builder.add([1] * cell.tokens, cell.context, blocks, NO_DRAFT, samples=False)
        outputs = cell.tokens if cell.tokens <= LOGITS_MAX else 1
        builder.outputs.extend(range(len(builder.tokens) - outputs, len(builder.tokens)))
    return builder.batch(torch.device("cpu")), builder.load()


class MeasuredFormat(msgspec.Struct, frozen=True):
    """What was measured of one format: rates of the machine, and steps with their milliseconds."""

    dtype: str
    roofline: Roofline
    steps: list[tuple[StepCell, StepLoad, float]]

    def of(self, cells: Sequence[StepCell]) -> list[tuple[StepLoad, float]]:
        """Return these cells' loads and milliseconds."""
        found = {cell: (load, ms) for cell, load, ms in self.steps}
        return [found[cell] for cell in cells]


def measured(dtype: str, pool: Pool, repeats: int) -> MeasuredFormat:
    """Return the least milliseconds of steps, taken in turns, on the default model's shape."""
    config = default_shape()
    forward = NativeForward(config, random_weights(config), dtype, pool)
    width, page_dtype = forward.page_width, forward.page_dtype
    pages = allocate(config, BLOCKS, BLOCK_SIZE, page_dtype, torch.device("cpu"), width)
    roofline = native_roofline(config, forward, pages, pool, forward.reading())
    batches = {cell: batch_of(cell) for cell in [*STARTS, *CELLS]}
    least = dict.fromkeys(batches, float("inf"))
    for turn in range(repeats + 1):
        for cell, (batch, _) in batches.items():
            begun = perf_counter()
            forward(batch, pages)
            if turn:  # the first touches memory
                least[cell] = min(least[cell], 1e3 * (perf_counter() - begun))
    steps = [(cell, load, least[cell]) for cell, (_, load) in batches.items()]
    return MeasuredFormat(dtype, roofline, steps)


def learnt(start: StepCost, steps: Sequence[tuple[StepLoad, float]]) -> StepCost:
    """Feed steps to a model of their cost, in random order."""
    rng = random.Random(1)
    for _ in range(LEARNT_STEPS):
        start.learn(*rng.choice(steps))
    return start


def report(title: str, cells: Sequence[StepCell], ratio: Callable[[StepCell], float]) -> None:
    """Print how far predictions are from measurements."""
    ratios = {cell: ratio(cell) for cell in cells}
    errors = sorted(abs(each - 1) for each in ratios.values())
    within = sum(error <= GOAL for error in errors)
    worst = max(ratios, key=lambda cell: abs(ratios[cell] - 1))
    print(
        f"{title:10s} within {GOAL:.0%}: {within} of {len(errors)}; median error "
        f"{median(errors):.1%}, 90 % {errors[int(0.9 * len(errors))]:.1%}, "
        f"worst {ratios[worst]:.2f} ({str(worst).strip()})"
    )


def compare(found: MeasuredFormat) -> None:
    """Print the table of one format."""
    roofline, seeds = found.roofline, found.of(STARTS)
    steps = dict(zip(CELLS, found.of(CELLS), strict=True))
    first = StepCost(seeds, roofline)
    odd, even = CELLS[1::2], CELLS[::2]
    knows_odd = learnt(StepCost(seeds, roofline), found.of(odd))
    knows_even = learnt(StepCost(seeds, roofline), found.of(even))
    later = {cell: knows_odd.ms(steps[cell][0]) for cell in even}
    later |= {cell: knows_even.ms(steps[cell][0]) for cell in odd}
    rates = roofline.rates
    print(
        f"\n{found.dtype}: {rates.flops_per_s / 1e9:.0f} GFLOP/s, "
        f"{rates.bytes_per_s / 1e9:.1f} GB/s, "
        f"attention takes {first.context.factors[0]:.2f} and {first.context.factors[1]:.2f} times "
        "the roofline's arithmetic and reading"
    )
    print("rows x tokens                  ms  at start  learnt  roofline / measured")
    for cell, (load, ms) in steps.items():
        print(
            f"{cell!s:24s} {ms:8.2f} {first.ms(load) / ms:9.2f} {later[cell] / ms:7.2f}"
            f" {roofline.ms(load) / ms:9.2f}"
        )
    report("at start", CELLS, lambda cell: first.ms(steps[cell][0]) / steps[cell][1])
    report("learnt", CELLS, lambda cell: later[cell] / steps[cell][1])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed.step_model")
    parser.add_argument("--dtypes", default="bf16,int8,int4")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--keep", type=Path, help="file that the measurements are written to")
    parser.add_argument("--kept", type=Path, help="such a file, in place of measurements")
    options = parser.parse_args()
    if options.kept:
        for found in msgspec.json.decode(options.kept.read_bytes(), type=list[MeasuredFormat]):
            compare(found)
        return
    pool, kept = Pool(options.threads), list[MeasuredFormat]()
    for dtype in options.dtypes.split(","):
        if dtype not in FORMATS:
            parser.error(f"{dtype!r} is none of {', '.join(FORMATS)}")
        kept.append(measured(dtype, pool, options.repeats))
        compare(kept[-1])
        if options.keep:
            options.keep.write_bytes(msgspec.json.encode(kept))


if __name__ == "__main__":
    main()
