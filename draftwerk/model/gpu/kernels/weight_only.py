"""Products with weights of a few bits: for few rows in one Triton kernel, for many by way of bf16.

A decode or verify step is bound by reading weights, so they are widened in registers, a block of 32
columns at a time. Codes are small whole numbers, exact in the activations' dtype; a block's sum
is scaled in float32, and its minimum is multiplied by the sum of the activations.

How the columns are shared out among programs depends on the matrix alone, and the parts are added
in their order, so with tiles of one height a row has the same bits in any company.
"""

from collections.abc import Callable

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn.functional import linear

from draftwerk.model.gpu.kernels.launch import ceil_div, core_count, launch, power_of_two
from draftwerk.model.gpu.kernels.products import Prepare, Product
from draftwerk.model.gpu.kernels.quantised import Quantised, by_rows
from draftwerk.model.gpu.kernels.widening import (
    dequantised,
    format_constants,
    group_scale,
    pointers,
    whole_codes,
)

BLOCK_N = 128
"""Weight rows of a tile."""
FEW_ROWS = 64
"""Up to here reading the weights takes longer than multiplying by them."""
EXACT_ROWS = 64
"""Height of every tile in exact mode."""
LEAST_ROWS = 16
"""The lowest tile that the matrix units take."""
PROGRAMS_PER_CORE = 2
SPLIT_UNITS_MIN = 4
MERGE_LANES = 1024


@triton.jit(do_not_specialize=["count"])
def product_kernel(
    values,
    codes,
    high,
    scales,
    minima,
    steps,
    minimum_steps,
    out,
    count,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    UNITS: tl.constexpr,
    SPLIT: tl.constexpr,
    BITS: tl.constexpr,
    GROUP: tl.constexpr,
    OFFSET: tl.constexpr,
    MINIMA: tl.constexpr,
    STEPS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """One tile of [count, ROWS] over SPLIT units of the columns; `out` has a part for each split.

    Tiles of the same weights run side by side, so that these are read from memory once.
    """
    HALVES: tl.constexpr = 1 if BITS == 8 else 2  # pyright: ignore
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    split = tl.program_id(2)
    live = (m < count)[:, None]
    real = n < ROWS
    sums = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    source = values + m.to(tl.int64)[:, None] * COLUMNS
    for unit in range(split * SPLIT, tl.minimum(split * SPLIT + SPLIT, UNITS)):
        line = (unit * ROWS + n).to(tl.int64)
        for piece in tl.static_range(32 // GROUP):  # pyright: ignore
            lanes = piece * GROUP + tl.arange(0, GROUP)
            code = tl.load(codes + line[None, :] * 32 + lanes[:, None], mask=real[None, :], other=0)
            for half in tl.static_range(HALVES):  # pyright: ignore
                block = unit * HALVES + half
                column = block * 32 + lanes[None, :]
                x = tl.load(source + column, mask=live & (column < COLUMNS), other=0.0)
                whole = whole_codes(
                    code, high, block, half, n, lanes, real, ROWS, BITS, OFFSET, x.dtype
                )
                scale = group_scale(scales, steps, block, piece, n, real, ROWS, GROUP, STEPS)
                part = tl.dot(x, whole, input_precision="ieee")
                sums += part * scale[None, :]
                if MINIMA:
                    minimum = group_scale(
                        minima, minimum_steps, block, piece, n, real, ROWS, GROUP, STEPS
                    )
                    sums += tl.sum(x.to(tl.float32), 1)[:, None] * minimum[None, :]
    target = (split * count + m).to(tl.int64)[:, None] * ROWS + n[None, :]
    tl.store(out + target, sums.to(out.dtype.element_ty), mask=live & real[None, :])


@triton.jit(do_not_specialize=["count"])
def add_parts_kernel(parts, out, count, PARTS: tl.constexpr, LANES: tl.constexpr):
    """Add the parts of `count` results in their order."""
    source = tl.program_id(0).to(tl.int64) * LANES + tl.arange(0, LANES)
    real = source < count
    total = tl.load(parts + source, mask=real, other=0.0)
    for part in tl.static_range(1, PARTS):  # pyright: ignore
        total += tl.load(parts + part * count.to(tl.int64) + source, mask=real, other=0.0)
    tl.store(out + source, total.to(out.dtype.element_ty), mask=real)


def product(values: Tensor, weight: Quantised, block_m: int) -> Tensor:
    """Map [T, columns] to [T, rows]; float32 sums in tiles of `block_m` rows."""
    values = values.contiguous()
    count, rows = len(values), weight.rows
    split = split_of(weight, core_count(values.device))
    parts = ceil_div(len(weight.codes), split)
    out = values.new_empty(count, rows)
    target = out if parts == 1 else values.new_empty(parts, count, rows, dtype=torch.float32)
    launch(
        product_kernel,
        (ceil_div(count, block_m), ceil_div(rows, BLOCK_N), parts),
        values,
        *pointers(weight),
        target,
        count,
        UNITS=len(weight.codes),
        SPLIT=split,
        BLOCK_M=block_m,
        BLOCK_N=BLOCK_N,
        num_warps=warps_of(block_m),
        num_stages=stages_of(weight.bits, weight.offset, block_m),
        **format_constants(weight),
    )
    if parts > 1:
        grid = (ceil_div(out.numel(), MERGE_LANES),)
        launch(add_parts_kernel, grid, target, out, out.numel(), PARTS=parts, LANES=MERGE_LANES)
    return out


def stages_of(bits: int, offset: int, block_m: int) -> int:
    """Return how many units are on their way to a program at once: fewer where room is short."""
    if offset and block_m >= 64:  # registers
        return 2
    return 3 if 4 < bits < 8 else 4


def warps_of(block_m: int) -> int:
    """Return how many warps share a tile: the highest would not fit in the registers of four."""
    return 8 if block_m >= 64 else 4


def split_of(weight: Quantised, cores: int) -> int:
    """Return how many units of columns a program takes; it depends on the matrix alone."""
    wanted = ceil_div(PROGRAMS_PER_CORE * cores, ceil_div(weight.rows, BLOCK_N))
    return max(SPLIT_UNITS_MIN, ceil_div(len(weight.codes), wanted))


def weight_only(quantise: Callable[[Tensor], Quantised], exact: bool = False) -> Prepare:
    """Make products of weights that are quantised here."""
    return lambda weight, bias: few_bits(by_rows(quantise, weight), bias, exact)


def few_bits(kept: Quantised, bias: Tensor | None, exact: bool) -> Product:
    """Return a product: the kernel for few rows, a plain product of widened weights for many.

    With `exact` the kernel computes all, in tiles of one height.
    """

    def multiply(values: Tensor) -> Tensor:
        count = len(values)
        if count > FEW_ROWS and not exact:
            return linear(values, dequantised(kept, values.dtype), bias)
        height = EXACT_ROWS if exact else max(LEAST_ROWS, power_of_two(max(1, count)))
        found = product(values, kept, height)
        return found if bias is None else found + bias

    return multiply
