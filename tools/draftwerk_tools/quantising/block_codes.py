"""Where the quants of GGUF's blocks lie, and which values they stand for.

A quant is a whole number from 0; the value that it stands for is level * scale + offset, with a
scale and an offset that a block has in its other bytes.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize
from numpy.typing import NDArray

PackedBytes = NDArray[Any]
Ints = NDArray[Any]
"""Arrays of uint8, or of wider integers before they are packed."""
IQ4_VALUES = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)


def planes(bits: Ints) -> PackedBytes:
    """Return a bit each [blocks, 256] as bytes [blocks, 32], of each 32 inputs one bit."""
    shifts = np.arange(8, dtype=np.uint8)[:, None]
    return np.bitwise_or.reduce(bits.reshape(-1, 8, 32) << shifts, axis=1)


def pairs(quants: Ints) -> PackedBytes:
    """Return two bits each [blocks, 256] as bytes [blocks, 64], four quarters of a half in each."""
    shifts = np.array([0, 2, 4, 6], np.uint8)[:, None]
    quarters = quants.reshape(-1, 2, 4, 32) << shifts
    return np.bitwise_or.reduce(quarters, axis=2).reshape(-1, 64)


def fours(quants: Ints) -> PackedBytes:
    """Return nibbles [blocks, 256] as bytes, of each 64 inputs the first half in the lower ones."""
    halves = quants.reshape(-1, 4, 2, 32)
    return (halves[:, :, 0] | halves[:, :, 1] << 4).reshape(-1, 128)


def nibbles(quants: Ints) -> PackedBytes:
    """Return nibbles [blocks, n * 32] as bytes, of each 32 inputs the first half in the lower."""
    halves = quants.reshape(-1, 2, 16)
    return (halves[:, 0] | halves[:, 1] << 4).reshape(len(quants), -1)


def threes(quants: Ints) -> PackedBytes:
    """Return the quants of Q3_K: the highest bits, then two bits each."""
    return np.hstack([planes(quants >> 2), pairs(quants & 3)])


def fives(quants: Ints) -> PackedBytes:
    """Return the quants of Q5_K: the highest bits, then nibbles."""
    return np.hstack([planes(quants >> 4), fours(quants & 15)])


def sixes(quants: Ints) -> PackedBytes:
    """Return the quants of Q6_K: nibbles, then two bits each."""
    quarters = quants.reshape(-1, 2, 4, 32)
    low = quarters & 15
    lower = low[:, :, :2] | low[:, :, 2:] << 4
    return np.hstack([lower.reshape(-1, 128), pairs(quants >> 4)])


def small_fives(quants: Ints) -> PackedBytes:
    """Return the quants of Q5_0 and Q5_1 [blocks, 32]: the highest bits, then nibbles."""
    return np.hstack([np.packbits(quants >> 4, axis=1, bitorder="little"), nibbles(quants & 15)])


class BlockCodes(NamedTuple):
    """The quants in a type's blocks."""

    begin: int
    """The first of their bytes, which lie together."""
    bytes_of: Callable[[Ints], PackedBytes]
    """From quants [blocks, inputs of a block] in uint8."""
    levels: Sequence[int]
    """By quant, ascending."""


CODES = {
    "Q2_K": BlockCodes(16, pairs, range(4)),
    "Q3_K": BlockCodes(0, threes, range(8)),
    "Q4_0": BlockCodes(2, nibbles, range(16)),
    "Q4_1": BlockCodes(4, nibbles, range(16)),
    "Q4_K": BlockCodes(16, fours, range(16)),
    "Q5_0": BlockCodes(2, small_fives, range(32)),
    "Q5_1": BlockCodes(4, small_fives, range(32)),
    "Q5_K": BlockCodes(16, fives, range(32)),
    "Q6_K": BlockCodes(0, sixes, range(64)),
    "Q8_0": BlockCodes(2, lambda quants: quants - np.uint8(128), range(256)),
    "IQ4_NL": BlockCodes(2, nibbles, IQ4_VALUES),
    "IQ4_XS": BlockCodes(8, nibbles, IQ4_VALUES),
}
"""By type; a type that is not here has no ascending levels."""


def with_quants(packed: PackedBytes, kind: str, quants: Ints) -> PackedBytes:
    """Return rows [rows, bytes a row] with quants [rows, inputs] and the scales that they have."""
    block, size = GGML_QUANT_SIZES[GGMLQuantizationType[kind]]
    codes = CODES[kind]
    found = packed.reshape(-1, size).copy()
    own = codes.bytes_of(quants.astype(np.uint8).reshape(-1, block))
    found[:, codes.begin : codes.begin + own.shape[1]] = own
    return found.reshape(packed.shape)


def values_of(packed: PackedBytes, kind: str) -> NDArray[Any]:
    """Return rows [rows, bytes a row] in float32 [rows, inputs]."""
    found = dequantize(np.ascontiguousarray(packed), GGMLQuantizationType[kind])
    return found.astype(np.float32, copy=False)


def scales_and_offsets(packed: PackedBytes, kind: str) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return each input's scale and offset [rows, inputs] in rows of a type."""
    levels = CODES[kind].levels
    block, size = GGML_QUANT_SIZES[GGMLQuantizationType[kind]]
    shape = len(packed), packed.shape[1] // size * block
    least, most = (
        values_of(with_quants(packed, kind, np.full(shape, quant, np.uint8)), kind)
        for quant in (0, len(levels) - 1)
    )
    scales = (most - least) / np.float32(levels[-1] - levels[0])
    return scales, least - scales * np.float32(levels[0])
