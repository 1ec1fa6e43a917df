"""Quantised matrices as blocks of groups: the same values, in the order that the kernels pack.

G4    float scale of which the lowest byte is the zero · nibbles, as in Q4_0     s * (q - z)
G8    float scale · signed bytes                                                  s * q
F8    float scale · e4m3 bytes                                                    s * q
"""

import numpy as np
from numpy.typing import NDArray

from draftwerk.model.checkpoint.unsupported import Refused

ByteRows = NDArray[np.uint8]
ScaleRows = NDArray[np.float32]
NO_EXPONENT = 0xFF
NOT_A_NUMBER = 0x7F
"""The code of e4m3, with either sign."""


def nibble_blocks(
    name: str, pairs: ByteRows, scales: ScaleRows, zeros: ByteRows, size: int
) -> ByteRows:
    """Return blocks [rows, bytes a row] of `size` inputs.

    `pairs` [rows, k / 2] have inputs 2 i and 2 i + 1, the first in the lower nibble; scales and
    zeros are [rows, groups]. Raises Refused for scales that 24 bits do not hold.
    """
    rows, half = pairs.shape
    words = np.ascontiguousarray(scales).view(np.uint32)
    if (words & 255).any():
        raise Refused(f"{name}: its scales have more digits than float16 and bfloat16 have")
    blocks = np.empty((rows, 2 * half // size, 4 + size // 2), np.uint8)
    each = _spread(words | zeros, blocks.shape[1])
    blocks[..., :4] = each[..., None].view(np.uint8)
    blocks[..., 4:] = _first_and_second_half(pairs).reshape(rows, blocks.shape[1], -1)
    return blocks.reshape(rows, -1)


def fp4_blocks(name: str, pairs: ByteRows, scales: ByteRows) -> ByteRows:
    """Return MXFP4's blocks [rows, bytes a row] of 32 inputs, as a GGUF has them.

    `pairs` [rows, groups, 16] have inputs 2 i and 2 i + 1, the first in the lower nibble; scales
    [rows, groups] are exponents. Raises Refused for one that is no number.
    """
    if (scales == NO_EXPONENT).any():
        raise Refused(f"{name}: a scale is no number")
    rows, groups = scales.shape
    blocks = np.empty((rows, groups, 17), np.uint8)
    blocks[..., 0] = scales
    blocks[..., 1:] = _first_and_second_half(pairs).reshape(rows, groups, -1)
    return blocks.reshape(rows, -1)


def _first_and_second_half(pairs: ByteRows) -> ByteRows:
    """Return nibbles of which each byte has i and i + 16 of 32, not 2 i and 2 i + 1."""
    halves = pairs.reshape(len(pairs), -1, 2, 8)
    first, second = halves[:, :, 0], halves[:, :, 1]
    quants = np.empty((*first.shape, 2), np.uint8)
    quants[..., 0] = first & 15 | second << 4
    quants[..., 1] = first >> 4 | second & 0xF0
    return quants


def byte_blocks(values: ByteRows, scales: ScaleRows, size: int) -> ByteRows:
    """Return blocks [rows, bytes a row] of bytes [rows, k] with scales [rows, groups]."""
    rows, inputs = values.shape
    blocks = np.empty((rows, inputs // size, 4 + size), np.uint8)
    each = _spread(np.ascontiguousarray(scales).view(np.uint32), blocks.shape[1])
    blocks[..., :4] = each[..., None].view(np.uint8)
    blocks[..., 4:] = values.reshape(rows, -1, size)
    return blocks.reshape(rows, -1)


def check_numbers(name: str, values: ByteRows) -> None:
    """Raise Refused where one of e4m3 is none."""
    if ((values & NOT_A_NUMBER) == NOT_A_NUMBER).any():
        raise Refused(f"{name}: a weight is no number")


def block_values(kind: str, data: ByteRows) -> ScaleRows:
    """Return the values [rows, inputs] of blocks of a type."""
    letter, size = kind.split("_")
    rows, inside = len(data), int(size)
    blocks = data.reshape(rows, -1, 4 + inside // (2 if letter == "G4" else 1))
    words = np.ascontiguousarray(blocks[..., :4]).view(np.uint32)
    quants = blocks[..., 4:]
    if letter == "G4":
        scales = (words & 0xFFFFFF00).view(np.float32)
        groups = quants.reshape(*quants.shape[:2], -1, 16)
        nibbles = np.concatenate([groups & 15, groups >> 4], axis=-1).reshape(rows, -1, inside)
        zeros = (words & 255).astype(np.float32) * scales
        values = nibbles.astype(np.float32) * scales - zeros
        return values.astype(np.float32).reshape(rows, -1)
    values = _of_e4m3(quants) if letter == "F8" else quants.view(np.int8).astype(np.float32)
    return (values * words.view(np.float32)).astype(np.float32).reshape(rows, -1)


def _of_e4m3(values: ByteRows) -> ScaleRows:
    """Return the values; of the same bits a half is a 256th."""
    wide = values.astype(np.uint16)
    halves = ((wide & 128) << 8 | (wide & 127) << 7).view(np.float16)
    return halves.astype(np.float32) * np.float32(256)


def _spread(words: NDArray[np.uint32], count: int) -> NDArray[np.uint32]:
    """Return a word for each of `count` blocks of a row."""
    return np.repeat(words, count // words.shape[1], axis=1)
