"""Products of signed bytes: weights with one scale a row, activations with one scale a token.

Sums are whole numbers, so a token has the same bits whatever the tiles, the splits of the columns
and the other tokens: exact mode costs nothing.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from draftwerk.model.gpu.kernels.launch import ceil_div, core_count, launch, power_of_two
from draftwerk.model.gpu.kernels.products import Product

LARGEST = 127
BLOCK_N = 128
BLOCK_K = 128
HEIGHT_MIN, HEIGHT_MAX = 16, 128
"""The height of a tile, in tokens."""
SPLIT_MIN = 4 * BLOCK_K
MERGE_LANES = 1024


@triton.jit
def round_kernel(values, codes, scales, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """Round a token's numbers to steps of its largest over 127; halves go up."""
    row = tl.program_id(0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    real = lanes < WIDTH
    x = tl.load(values + row * WIDTH + lanes, mask=real, other=0.0).to(tl.float32)
    top = tl.maximum(tl.max(tl.abs(x), 0), 1e-12)
    steps = tl.floor(x * tl.div_rn(127.0, top) + 0.5)
    tl.store(codes + row * WIDTH + lanes, steps.to(tl.int8), mask=real)
    tl.store(scales + row, tl.div_rn(top, 127.0))


@triton.jit(do_not_specialize=["count"])
def byte_product_kernel(
    tokens,
    token_scales,
    weights,
    weight_scales,
    out,
    count,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    SPLIT: tl.constexpr,
    WHOLE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """One tile of [count, ROWS] over SPLIT columns; scaled if WHOLE, else an int32 part of it."""
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    split = tl.program_id(2)
    lanes = tl.arange(0, BLOCK_K)
    live, real = (m < count)[:, None], (n < ROWS)[None, :]
    sums = tl.zeros([BLOCK_M, BLOCK_N], tl.int32)
    for column in range(split * SPLIT, tl.minimum(split * SPLIT + SPLIT, COLUMNS), BLOCK_K):
        k = column + lanes
        inside = k < COLUMNS
        x = tl.load(
            tokens + m.to(tl.int64)[:, None] * COLUMNS + k[None, :],
            mask=live & inside[None, :],
            other=0,
        )
        w = tl.load(
            weights + n.to(tl.int64)[None, :] * COLUMNS + k[:, None],
            mask=real & inside[:, None],
            other=0,
        )
        sums += tl.dot(x, w, out_dtype=tl.int32)
    target = (split * count + m).to(tl.int64)[:, None] * ROWS + n[None, :]
    if WHOLE:
        by_token = tl.load(token_scales + m, mask=m < count, other=0.0)
        by_row = tl.load(weight_scales + n, mask=n < ROWS, other=0.0)
        scaled = sums.to(tl.float32) * by_token[:, None] * by_row[None, :]
        tl.store(out + target, scaled.to(out.dtype.element_ty), mask=live & real)
    else:
        tl.store(out + target, sums, mask=live & real)


@triton.jit(do_not_specialize=["count"])
def scale_parts_kernel(
    sums,
    token_scales,
    weight_scales,
    out,
    count,
    ROWS: tl.constexpr,
    PARTS: tl.constexpr,
    LANES: tl.constexpr,
):
    """Add the parts of [count, ROWS] results, and scale them."""
    place = tl.program_id(0).to(tl.int64) * LANES + tl.arange(0, LANES)
    size = count.to(tl.int64) * ROWS
    real = place < size
    total = tl.load(sums + place, mask=real, other=0)
    for part in tl.static_range(1, PARTS):  # pyright: ignore
        total += tl.load(sums + part * size + place, mask=real, other=0)
    by_token = tl.load(token_scales + place // ROWS, mask=real, other=0.0)
    by_row = tl.load(weight_scales + place % ROWS, mask=real, other=0.0)
    scaled = total.to(tl.float32) * by_token * by_row
    tl.store(out + place, scaled.to(out.dtype.element_ty), mask=real)


def rounded(values: Tensor) -> tuple[Tensor, Tensor]:
    """Return int8 codes [T, n] and float32 scales [T] of rows on the device."""
    values = values.contiguous()
    codes = torch.empty_like(values, dtype=torch.int8)
    scales = values.new_empty(len(values), dtype=torch.float32)
    width = values.shape[1]
    launch(
        round_kernel,
        (len(values),),
        values,
        codes,
        scales,
        WIDTH=width,
        BLOCK=power_of_two(width),
        num_warps=8 if width >= 2048 else 4,
    )
    return codes, scales


def byte_product(
    tokens: Tensor, token_scales: Tensor, weights: Tensor, weight_scales: Tensor, dtype: torch.dtype
) -> Tensor:
    """Map int8 [T, columns] and [rows, columns] to [T, rows]."""
    count, (rows, columns) = len(tokens), weights.shape
    height = min(HEIGHT_MAX, max(HEIGHT_MIN, power_of_two(max(1, count))))
    split = split_of(count, rows, columns, height, core_count(tokens.device))
    parts = ceil_div(columns, split)
    out = torch.empty(count, rows, dtype=dtype, device=tokens.device)
    sums = out if parts == 1 else out.new_empty(parts, count, rows, dtype=torch.int32)
    launch(
        byte_product_kernel,
        (ceil_div(count, height), ceil_div(rows, BLOCK_N), parts),
        tokens,
        token_scales,
        weights,
        weight_scales,
        sums,
        count,
        ROWS=rows,
        COLUMNS=columns,
        SPLIT=split,
        WHOLE=parts == 1,
        BLOCK_M=height,
        BLOCK_N=BLOCK_N,
        BLOCK_K=BLOCK_K,
        num_warps=warps_of(height),
        num_stages=3,
    )
    if parts > 1:
        launch(
            scale_parts_kernel,
            (ceil_div(out.numel(), MERGE_LANES),),
            sums,
            token_scales,
            weight_scales,
            out,
            count,
            ROWS=rows,
            PARTS=parts,
            LANES=MERGE_LANES,
        )
    return out


def warps_of(height: int) -> int:
    """Return how many warps share a tile."""
    return 8 if height >= 64 else 4


def split_of(count: int, rows: int, columns: int, height: int, cores: int) -> int:
    """Return how many columns a program takes: all, unless cores would be idle.

    Columns are shared out among a power of two, so that few kernels serve all counts of rows.
    """
    tiles = ceil_div(count, height) * ceil_div(rows, BLOCK_N)
    programs = max(1, cores // max(1, tiles))
    share = ceil_div(columns, 1 << programs.bit_length() - 1)
    return max(SPLIT_MIN, ceil_div(share, BLOCK_K) * BLOCK_K)


def by_row(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return int8 codes [n, k] and float32 scales [n]: the twin of `rounded`."""
    wide = weight.float()
    top = wide.abs().amax(dim=1).clamp(min=1e-12)
    codes = (wide * (LARGEST / top)[:, None] + 0.5).floor().to(torch.int8)
    return codes, top / LARGEST


def w8a8(weight: Tensor, bias: Tensor | None) -> Product:
    """Round weights, and activations when they come; equal for any other rows in the batch."""
    weights, weight_scales = by_row(weight)

    def product(values: Tensor) -> Tensor:
        found = byte_product(*rounded(values), weights, weight_scales, values.dtype)
        return found if bias is None else found + bias

    return product
