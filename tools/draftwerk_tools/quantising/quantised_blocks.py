"""Rows of numbers as blocks of GGUF's types: those that the gguf package cannot write."""

from collections.abc import Callable, Iterable

import gguf
import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from draftwerk_tools.quantising.block_codes import (
    IQ4_VALUES,
    Ints,
    PackedBytes,
    fives,
    fours,
    nibbles,
    pairs,
    sixes,
    threes,
)
from draftwerk_tools.quantising.searches import (
    TINY,
    Floats,
    Rounding,
    centred_scales,
    extreme,
    scales_and_minima,
)

CHUNK = 2**18
"""Numbers searched at once: they stay in the processor's cache."""
CENTRED_STEPS = tuple(0.1 * step for step in range(-9, 10))
"""Around the divisor of the farthest value."""


def quantised(values: Floats, kind: str) -> PackedBytes:
    """Return rows [rows, width] in a type's blocks [rows, bytes a row].

    The width must be whole blocks. Raises ValueError.
    """
    block, _ = GGML_QUANT_SIZES[GGMLQuantizationType[kind]]
    rows, width = values.shape
    if width % block:
        raise ValueError(f"rows of {width} are no whole blocks of {kind}")
    writer = WRITERS.get(kind)
    if writer is None:
        return gguf.quantize(values, GGMLQuantizationType[kind]).view(np.uint8).reshape(rows, -1)
    blocks = values.astype(np.float32, copy=False).reshape(-1, block)
    parts = [
        writer(blocks[at : at + CHUNK // block]) for at in range(0, len(blocks), CHUNK // block)
    ]
    return np.concatenate(parts).reshape(rows, -1)


def _halves(values: Floats) -> PackedBytes:
    """Return numbers [blocks] as the bytes [blocks, 2] of float16."""
    return values.astype(np.float16).view(np.uint8).reshape(-1, 2)


def _as_half(values: Floats) -> Floats:
    return values.astype(np.float16).astype(np.float32)


def _over(values: Floats, scales: Floats) -> Floats:
    """Return values over scales, zero where a scale is."""
    return np.divide(values, scales, out=np.zeros_like(values), where=scales != 0)


def _parts(blocks: Floats, size: int) -> Floats:
    """Return blocks [blocks, 256] as parts of a size [size, parts]."""
    return np.ascontiguousarray(blocks.reshape(-1, size).T)


def _whole(parts: Floats, size: int) -> Ints:
    """Return the quants of parts [size, parts] as those of blocks [blocks, 256]."""
    return np.ascontiguousarray(parts.T).reshape(-1, 256).astype(np.uint8)


def _rounding(quant_max: int) -> Rounding:
    """Return what rounds to -quant_max .. quant_max - 1."""

    def rounded(values: Floats) -> Floats:
        np.rint(values, out=values)
        return np.clip(values, -quant_max, quant_max - 1, out=values)

    return rounded


def _to_iq4(values: Floats) -> Floats:
    """Return the nearest of the table's values."""
    return IQ4_NEAREST[np.clip(np.rint(values), -128, 127).astype(np.int64) + 128]


def _iq4_index(values: Floats) -> Ints:
    return IQ4_INDEX[np.clip(np.rint(values), -128, 127).astype(np.int64) + 128]


IQ4_INDEX = np.abs(np.arange(-128, 128)[:, None] - np.array(IQ4_VALUES)).argmin(axis=1)
IQ4_INDEX = IQ4_INDEX.astype(np.uint8)
IQ4_NEAREST = np.array(IQ4_VALUES, np.float32)[IQ4_INDEX]


def _scaled(
    blocks: Floats, size: int, scale_max: int, rounding: Rounding, divisors: Iterable[float]
) -> tuple[PackedBytes, Ints, Floats]:
    """Return halves, integer scales and scaled parts of blocks whose scales are signed integers.

    The scales' own scale is that of the one farthest from zero, as -scale_max.
    """
    parts = _parts(blocks, size)
    scales = centred_scales(parts, divisors, rounding).reshape(len(blocks), -1)
    farthest = extreme(scales.T)
    farthest = np.where(np.abs(farthest) < TINY, np.float32(0), farthest)
    d = farthest / np.float32(-scale_max)
    integers = np.rint(_over(scales, np.repeat(d[:, None], scales.shape[1], axis=1)))
    integers = np.clip(integers, -scale_max, scale_max - 1).astype(np.float32)
    each = (_as_half(d)[:, None] * integers).reshape(-1)
    return _halves(d), integers.astype(np.int64), _over(parts, np.broadcast_to(each, parts.shape))


def _q6_k(blocks: Floats) -> PackedBytes:
    d, scales, parts = _scaled(
        blocks, 16, 128, _rounding(32), [-32 - step for step in CENTRED_STEPS]
    )
    quants = _whole(_rounding(32)(parts) + 32, 16)
    return np.hstack([sixes(quants), scales.astype(np.int8).view(np.uint8), d])


def _q3_k(blocks: Floats) -> PackedBytes:
    d, scales, parts = _scaled(blocks, 16, 32, _rounding(4), [-4 - step for step in CENTRED_STEPS])
    quants = _whole(_rounding(4)(parts) + 4, 16)
    count = len(blocks)
    numbers = (scales + 32).astype(np.uint8)
    low = numbers[:, :8] & 15 | (numbers[:, 8:] & 15) << 4
    shifts = np.array([0, 2, 4, 6], np.uint8)[:, None]
    high = np.bitwise_or.reduce((numbers >> 4).reshape(count, 4, 4) << shifts, axis=1)
    return np.hstack([threes(quants), low, high, d])


def _with_minima(
    blocks: Floats, size: int, quant_max: int, scale_max: int, steps: list[float]
) -> tuple[PackedBytes, Ints, Ints, Ints]:
    """Return both halves, integer scales, integer minima and quants [blocks, 256]."""
    parts = _parts(blocks, size)
    weights = np.abs(parts)
    if size == 32:
        weights += np.sqrt((parts * parts).mean(axis=0))
    found = scales_and_minima(parts, weights, quant_max, steps, absolute=size == 16)
    halves: list[PackedBytes] = []
    numbers: list[Floats] = []
    values: list[Floats] = []
    for each in found:
        rows = np.maximum(each.reshape(len(blocks), -1), 0)
        d = rows.max(axis=1) / np.float32(scale_max)
        integers = np.minimum(
            np.rint(_over(rows, np.broadcast_to(d[:, None], rows.shape))), scale_max
        )
        halves.append(_halves(d))
        numbers.append(integers)
        values.append((_as_half(d)[:, None] * integers).reshape(-1))
    scales, minima = values
    quants = np.rint(_over(parts + minima, np.broadcast_to(scales, parts.shape)))
    quants = np.clip(quants, 0, quant_max)
    first, second = (each.astype(np.uint8) for each in numbers)
    return np.hstack(halves), first, second, _whole(quants, size)


def _six_bits(scales: Ints, minima: Ints) -> PackedBytes:
    """Return eight scales and eight minima of six bits in twelve bytes."""
    low = scales[:, :4] | scales[:, 4:] >> 4 << 6
    middle = minima[:, :4] | minima[:, 4:] >> 4 << 6
    return np.hstack([low, middle, scales[:, 4:] & 15 | (minima[:, 4:] & 15) << 4])


def _q4_k(blocks: Floats) -> PackedBytes:
    steps = [0.1 * step - 1 for step in range(21)]
    halves, scales, minima, quants = _with_minima(blocks, 32, 15, 63, steps)
    return np.hstack([halves, _six_bits(scales, minima), fours(quants)])


def _q5_k(blocks: Floats) -> PackedBytes:
    steps = [0.1 * step - 0.5 for step in range(16)]
    halves, scales, minima, quants = _with_minima(blocks, 32, 31, 63, steps)
    return np.hstack([halves, _six_bits(scales, minima), fives(quants)])


def _q2_k(blocks: Floats) -> PackedBytes:
    steps = [0.1 * step - 0.5 for step in range(16)]
    halves, scales, minima, quants = _with_minima(blocks, 16, 3, 15, steps)
    return np.hstack([scales | minima << 4, pairs(quants), halves])


def _iq4_nl(blocks: Floats) -> PackedBytes:
    parts = np.ascontiguousarray(blocks.T)
    scales = centred_scales(parts, range(-127 - 7, -127 + 8), _to_iq4)
    quants = _iq4_index(_over(parts, np.broadcast_to(_as_half(scales), parts.shape))).T
    return np.hstack([_halves(scales), nibbles(quants)])


def _iq4_xs(blocks: Floats) -> PackedBytes:
    d, scales, parts = _scaled(blocks, 32, 32, _to_iq4, range(-127 - 7, -127 + 8))
    numbers = scales + 32
    count = len(blocks)
    high = (numbers >> 4 << 2 * np.arange(8)).sum(axis=1).astype(np.uint16)
    low = numbers[:, ::2] & 15 | (numbers[:, 1::2] & 15) << 4
    quants = np.ascontiguousarray(_iq4_index(parts).T).reshape(count, 256)
    return np.hstack([d, high.view(np.uint8).reshape(-1, 2), low.astype(np.uint8), nibbles(quants)])


WRITERS: dict[str, Callable[[Floats], PackedBytes]] = {
    "Q2_K": _q2_k,
    "Q3_K": _q3_k,
    "Q4_K": _q4_k,
    "Q5_K": _q5_k,
    "Q6_K": _q6_k,
    "IQ4_NL": _iq4_nl,
    "IQ4_XS": _iq4_xs,
}
