"""Codes of a few bits widened to floats: in a product's registers, or to a matrix of their own."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from draftwerk.model.gpu.kernels.launch import ceil_div, launch
from draftwerk.model.gpu.kernels.quantised import Quantised

DEQUANTISE_ROWS = 32


@triton.jit
def whole_codes(
    code,
    high,
    block,
    half,
    n,
    lanes,
    real,
    ROWS: tl.constexpr,
    BITS: tl.constexpr,
    OFFSET: tl.constexpr,
    TYPE: tl.constexpr,
):
    """Return a block's codes in a type of floats that holds them."""
    if BITS == 8:
        return code.to(TYPE)
    whole = code >> (half * 4) & 15
    if BITS > 4:
        HIGH: tl.constexpr = BITS - 4  # pyright: ignore
        MASK: tl.constexpr = (1 << HIGH) - 1  # pyright: ignore
        PER_UNIT: tl.constexpr = 8 // HIGH  # pyright: ignore
        line = (block // PER_UNIT * ROWS + n).to(tl.int64)
        more = tl.load(high + line[None, :] * 32 + lanes[:, None], mask=real[None, :], other=0)
        shift = (block % PER_UNIT * HIGH).to(tl.uint8)
        whole = whole | (more >> shift & MASK) << 4
    # By way of signed bytes, which Triton widens without a conversion for each.
    return whole.to(tl.int8, bitcast=True).to(TYPE) - OFFSET


@triton.jit
def group_scale(
    scales,
    steps,
    block,
    piece,
    n,
    real,
    ROWS: tl.constexpr,
    GROUP: tl.constexpr,
    STEPS: tl.constexpr,
):
    """Return the scales, or the minima, of one group of every row."""
    line = ((block * (32 // GROUP) + piece) * ROWS + n).to(tl.int64)
    scale = tl.load(scales + line, mask=real, other=0.0).to(tl.float32)
    if STEPS:
        step = tl.load(steps + (block // 8 * ROWS + n).to(tl.int64), mask=real, other=0.0)
        scale = scale * step.to(tl.float32)
    return scale


@triton.jit(do_not_specialize=["count"], do_not_specialize_on_alignment=["index"])
def dequantise_kernel(
    index,
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
    BITS: tl.constexpr,
    GROUP: tl.constexpr,
    OFFSET: tl.constexpr,
    MINIMA: tl.constexpr,
    STEPS: tl.constexpr,
    CHOSEN: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Widen one unit of columns of BLOCK_N rows: of all in order, or of those that are CHOSEN."""
    HALVES: tl.constexpr = 1 if BITS == 8 else 2  # pyright: ignore
    unit = tl.program_id(0)
    place = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    real = place < count
    n = place
    if CHOSEN:
        n = tl.load(index + place, mask=real, other=0)
    line = (unit * ROWS + n).to(tl.int64)
    for piece in tl.static_range(32 // GROUP):  # pyright: ignore
        lanes = piece * GROUP + tl.arange(0, GROUP)
        code = tl.load(codes + line[None, :] * 32 + lanes[:, None], mask=real[None, :], other=0)
        for half in tl.static_range(HALVES):  # pyright: ignore
            block = unit * HALVES + half
            whole = whole_codes(
                code, high, block, half, n, lanes, real, ROWS, BITS, OFFSET, tl.float32
            )
            scale = group_scale(scales, steps, block, piece, n, real, ROWS, GROUP, STEPS)
            wide = whole * scale[None, :]
            if MINIMA:
                wide += group_scale(
                    minima, minimum_steps, block, piece, n, real, ROWS, GROUP, STEPS
                )[None, :]
            column = (block * 32 + lanes)[:, None]
            tl.store(
                out + place.to(tl.int64)[None, :] * COLUMNS + column,
                wide.to(out.dtype.element_ty),
                mask=real[None, :] & (column < COLUMNS),
            )


def pointers(weight: Quantised) -> list[Tensor]:
    """Return the tensors that a kernel takes; of those that are None it reads nothing."""
    return [weight.codes if tensor is None else tensor for tensor in weight.tensors]


def format_constants(weight: Quantised) -> dict[str, int | bool]:
    """Return what kernels are compiled for."""
    return {
        "ROWS": weight.rows,
        "COLUMNS": weight.columns,
        "BITS": weight.bits,
        "GROUP": weight.group,
        "OFFSET": weight.offset,
        "MINIMA": weight.minima is not None,
        "STEPS": weight.steps is not None,
    }


def dequantised(weight: Quantised, dtype: torch.dtype, chosen: Tensor | None = None) -> Tensor:
    """Return the matrix that codes stand for, or some of its rows, by index."""
    count = weight.rows if chosen is None else len(chosen)
    out = torch.empty(count, weight.columns, dtype=dtype, device=weight.codes.device)
    launch(
        dequantise_kernel,
        (len(weight.codes), ceil_div(count, DEQUANTISE_ROWS)),
        weight.codes if chosen is None else chosen,
        *pointers(weight),
        out,
        count,
        CHOSEN=chosen is not None,
        BLOCK_N=DEQUANTISE_ROWS,
        **format_constants(weight),
    )
    return out
