"""Query and key norms, rotation and the write to the KV pages as one Triton kernel."""

import triton
import triton.language as tl
from torch import Tensor

from draftwerk.model.batch.e4m3 import FP8
from draftwerk.model.gpu.kernels.launch import ceil_div, launch, power_of_two
from draftwerk.model.gpu.ops import HeadNorms


@triton.jit
def to_e4m3(values, kind: tl.constexpr):
    """Round to the nearest e4m3, ties to even, and saturate: a number beyond has no code.

    Rounded by hand to float32 numbers that have codes, so that the conversion has nothing left to
    decide: Triton's interpreter truncates, and drops the carry into the exponent.
    """
    wide = values.to(tl.float32)
    wide = tl.minimum(tl.maximum(wide, -448.0), 448.0)
    bits = wide.to(tl.int32, bitcast=True)
    even = (bits >> 20) & 1
    normal = ((bits + 0x7FFFF + even) & -0x100000).to(tl.float32, bitcast=True)
    # Below 2 ** -6 steps are 2 ** -9 apart, as float32 has them from 2 ** 14 on.
    small = (wide + 24576.0) - 24576.0
    return tl.where(tl.abs(wide) < 0.015625, small, normal).to(kind)


@triton.jit
def rotate_kernel(
    qkv,
    cos,
    sin,
    slots,
    query_norm,
    key_norm,
    query,
    keys,
    values,
    eps,
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    SIZE: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK_D: tl.constexpr,
    NORM: tl.constexpr,
    FP8: tl.constexpr,
):
    """One token's heads [BLOCK_H, 2 halves of BLOCK_D]; query heads first, then key, then value."""
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H)
    lanes = tl.arange(0, BLOCK_D)
    HALF: tl.constexpr = SIZE // 2
    is_query = head < HEADS
    is_value = head >= HEADS + KV_HEADS
    real = (head < HEADS + 2 * KV_HEADS)[:, None] & (lanes < HALF)[None, :]
    source = qkv + (token * (HEADS + 2 * KV_HEADS) + head)[:, None] * SIZE + lanes[None, :]
    first = tl.load(source, mask=real, other=0.0)
    second = tl.load(source + HALF, mask=real, other=0.0)
    raw_first = first
    raw_second = second
    if NORM:
        wide_first = first.to(tl.float32)
        wide_second = second.to(tl.float32)
        squares = tl.sum(wide_first * wide_first, 1) + tl.sum(wide_second * wide_second, 1)
        scale = tl.rsqrt(squares / SIZE + eps)[:, None]
        half = lanes < HALF
        weight_first = tl.where(
            is_query[:, None],
            tl.load(query_norm + lanes, mask=half, other=0.0)[None, :],
            tl.load(key_norm + lanes, mask=half, other=0.0)[None, :],
        )
        weight_second = tl.where(
            is_query[:, None],
            tl.load(query_norm + HALF + lanes, mask=half, other=0.0)[None, :],
            tl.load(key_norm + HALF + lanes, mask=half, other=0.0)[None, :],
        )
        first = weight_first * (wide_first * scale).to(first.dtype)
        second = weight_second * (wide_second * scale).to(second.dtype)
    c = tl.load(cos + token * HALF + lanes, mask=lanes < HALF, other=0.0)[None, :]
    s = tl.load(sin + token * HALF + lanes, mask=lanes < HALF, other=0.0)[None, :]
    a = first.to(tl.float32)
    b = second.to(tl.float32)
    rotated_first = (a * c - b * s).to(raw_first.dtype)
    rotated_second = (b * c + a * s).to(raw_first.dtype)

    target = query + (token * HEADS + head)[:, None] * SIZE + lanes[None, :]
    mine = real & is_query[:, None]
    tl.store(target, rotated_first, mask=mine)
    tl.store(target + HALF, rotated_second, mask=mine)
    slot = tl.load(slots + token).to(tl.int64)
    if slot >= 0:  # padding is written nowhere
        kind: tl.constexpr = keys.dtype.element_ty
        offset = slot * KV_HEADS * SIZE
        if FP8:
            key_first = to_e4m3(rotated_first, kind)
            key_second = to_e4m3(rotated_second, kind)
            value_first = to_e4m3(raw_first, kind)
            value_second = to_e4m3(raw_second, kind)
        else:
            key_first = rotated_first.to(kind)
            key_second = rotated_second.to(kind)
            value_first = raw_first.to(kind)
            value_second = raw_second.to(kind)
        mine = real & ((head >= HEADS) & (head < HEADS + KV_HEADS))[:, None]
        goal = keys + offset + (head - HEADS)[:, None] * SIZE + lanes[None, :]
        tl.store(goal, key_first, mask=mine)
        tl.store(goal + HALF, key_second, mask=mine)
        mine = real & is_value[:, None]
        goal = values + offset + (head - HEADS - KV_HEADS)[:, None] * SIZE + lanes[None, :]
        tl.store(goal, value_first, mask=mine)
        tl.store(goal + HALF, value_second, mask=mine)


HEADS_A_PROGRAM = 16


def rotate_and_store(
    qkv: Tensor,
    rotation: tuple[Tensor, Tensor],
    slots: Tensor,
    norms: HeadNorms | None,
    keys: Tensor,
    values: Tensor,
) -> Tensor:
    """Write K and V of qkv [T, all heads * D] into one layer's pages, return Q [T, heads, D]."""
    kv_heads, size = keys.shape[2:]
    every = qkv.shape[1] // size
    heads = every - 2 * kv_heads
    query = qkv.new_empty(len(qkv), heads, size)
    launch(
        rotate_kernel,
        (len(qkv), ceil_div(every, HEADS_A_PROGRAM)),
        qkv,
        *rotation,
        slots,
        qkv if norms is None else norms.query,
        qkv if norms is None else norms.key,
        query,
        keys,
        values,
        0.0 if norms is None else norms.eps,
        HEADS=heads,
        KV_HEADS=kv_heads,
        SIZE=size,
        BLOCK_H=HEADS_A_PROGRAM,
        BLOCK_D=power_of_two(size // 2),
        NORM=norms is not None,
        FP8=keys.dtype == FP8,
    )
    return query
