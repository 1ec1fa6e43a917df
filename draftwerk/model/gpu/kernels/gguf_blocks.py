"""A file's blocks, arranged for the kernels: the same codes, scales and steps in planes.

    block of a file   | scale | ... | codes of 32 or 256 columns |   one behind another, by row
    arranged          codes, high bits, scales, steps: a plane each, as `Quantised` has them

The formats are those of ggml's `ggml-common.h`, and of `checkpoint.quantised.group_blocks`. Codes
that stand for values of a table are arranged as these, in a byte each.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from gguf.quants import IQ4_NL
from torch import Tensor
from torch.nn.functional import pad

from draftwerk.model.checkpoint.stored_matrix import StoredMatrix
from draftwerk.model.gpu.kernels.quantised import BLOCK, NUMBERS_AT_ONCE, Quantised, joined


class Unpacked(NamedTuple):
    """The numbers of blocks before they are arranged; R rows of n columns."""

    codes: Tensor
    """uint8 [R, n]; signed where they have eight bits."""
    scales: Tensor
    """[R, groups] of 16 columns or more."""
    minima: Tensor | None = None
    steps: Tensor | None = None
    """[R, n / 256]."""
    minimum_steps: Tensor | None = None


class BlockFormat(NamedTuple):
    """A type of blocks."""

    byte_count: int
    """The bytes of a block."""
    bits: int
    """The bits of a code."""
    offset: int
    """The number that is taken off a code."""
    unpack: Callable[[Tensor], Unpacked]
    """Reads uint8 [R, blocks, bytes]."""


def arranged(matrix: StoredMatrix, device: torch.device) -> Quantised:
    """Return a matrix of one of FORMATS on a device; some rows at a time, for work takes room."""
    count = max(1, NUMBERS_AT_ONCE // matrix.shape[1])
    parts: list[Quantised] = []
    for first in range(0, matrix.shape[0], count):
        rows = slice(first, first + count)
        data = matrix.data[rows if matrix.rows is None else matrix.rows[rows]]
        # A copy: the file's pages are read-only, and given back.
        blocks = torch.from_numpy(data.copy()).to(device)
        parts.append(_arranged(FORMATS[matrix.kind], blocks, matrix.shape[1]))
    return joined(parts)


def _arranged(kind: BlockFormat, rows: Tensor, columns: int) -> Quantised:
    found = kind.unpack(rows.unflatten(1, (-1, kind.byte_count)))
    codes = found.codes.unflatten(1, (-1, BLOCK)).transpose(0, 1)
    high, groups = None, max(1, found.scales.shape[1] // len(codes))
    wider = len(codes) * groups // found.scales.shape[1]
    """Groups of the kernels in one of the file."""
    if kind.bits == 8:
        codes = codes.view(torch.int8)
    else:
        # Whole units of each plane.
        bits = kind.bits - 4
        codes = pad(codes, (0, 0, 0, 0, 0, -len(codes) % (8 // bits if bits else 2)))
        if bits:
            high = _gathered(codes >> 4, bits)
        codes = _gathered(codes & 15, 4)
    blocks = len(codes) * (1 if kind.bits == 8 else 2)

    def plane(values: Tensor | None) -> Tensor | None:
        return None if values is None else values.T.contiguous()

    def group_plane(values: Tensor) -> Tensor:
        own = values.T.repeat_interleave(wider, dim=0)
        return pad(own, (0, 0, 0, blocks * groups - len(own))).contiguous()

    return Quantised(
        codes.contiguous(),
        group_plane(found.scales),
        None if found.minima is None else group_plane(found.minima),
        columns,
        high,
        plane(found.steps),
        plane(found.minimum_steps),
        kind.offset,
    )


def _gathered(codes: Tensor, bits: int) -> Tensor:
    """Return [units, R, 32]: the codes of as many blocks as fit into a byte."""
    count = 8 // bits
    found = codes[::count].clone(memory_format=torch.contiguous_format)
    for place in range(1, count):
        found |= codes[place::count] << bits * place
    return found


def _numbers(blocks: Tensor, begin: int) -> Tensor:
    """Return one float16 of each block."""
    return blocks[..., begin : begin + 2].contiguous().view(torch.float16).flatten(1)


def _bits(values: Tensor, bits: int) -> Tensor:
    """Return [..., 8 / bits, n]: the parts of each byte, the lowest first."""
    shifts = torch.arange(0, 8, bits, dtype=torch.uint8, device=values.device)
    return values[..., None, :] >> shifts[:, None] & (1 << bits) - 1


def _of_32(has_minima: bool, has_high: bool) -> Callable[[Tensor], Unpacked]:
    """Return what reads Q4_0 to Q5_1: byte i has the codes of columns i and i + 16."""

    def unpack(blocks: Tensor) -> Unpacked:
        codes = _bits(blocks[..., -16:], 4).flatten(2)
        if has_high:
            bits = _bits(blocks[..., -20:-16], 1).transpose(-1, -2).flatten(2)
            codes = codes | bits << 4
        minima = _numbers(blocks, 2) if has_minima else None
        return Unpacked(codes.flatten(1), _numbers(blocks, 0), minima)

    return unpack


def _q8_0(blocks: Tensor) -> Unpacked:
    return Unpacked(blocks[..., 2:].flatten(1), _numbers(blocks, 0))


def _of_six_bits(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """Return the eight scales and minima of 256 columns of Q4_K and Q5_K."""
    first, second, third = blocks[..., 4:16].split(4, dim=-1)
    scales = torch.cat([first & 63, third & 15 | first >> 6 << 4], dim=-1)
    minima = torch.cat([second & 63, third >> 4 | second >> 6 << 4], dim=-1)
    return scales.flatten(1), minima.flatten(1)


def _q4_k(blocks: Tensor) -> Unpacked:
    """The first 32 of 64 columns are in the low halves of bytes, the others in the high."""
    codes = _bits(blocks[..., -128:].unflatten(-1, (4, 32)), 4)
    steps, minimum_steps = _numbers(blocks, 0), -_numbers(blocks, 2)
    return Unpacked(codes.flatten(1), *_of_six_bits(blocks), steps, minimum_steps)


def _q5_k(blocks: Tensor) -> Unpacked:
    """As Q4_K, and the fifth bit of column i of block b is bit b of byte i."""
    found = _q4_k(blocks)
    return found._replace(codes=found.codes | _bits(blocks[..., 16:48], 1).flatten(1) << 4)


def _q6_k(blocks: Tensor) -> Unpacked:
    """Two runs of 32, of 128 columns, are in the low halves of 64 bytes, two in the high."""
    low = _bits(blocks[..., :128].unflatten(-1, (2, 64)), 4)
    high = _bits(blocks[..., 128:192].unflatten(-1, (2, 32)), 2)
    scales = blocks[..., 192:208].contiguous().view(torch.int8).flatten(1)
    return Unpacked(low.flatten(1) | high.flatten(1) << 4, scales, steps=_numbers(blocks, 208))


def _pairs(values: Tensor) -> Tensor:
    """Return the codes of two bits of 256 columns: of 32 bytes the lowest bits first."""
    return _bits(values.unflatten(-1, (2, 32)), 2).flatten(1)


def _q2_k(blocks: Tensor) -> Unpacked:
    """Scales and minima of 16 columns are halves of a byte."""
    both = blocks[..., :16].flatten(1)
    steps, minimum_steps = _numbers(blocks, 80), -_numbers(blocks, 82)
    return Unpacked(_pairs(blocks[..., 16:80]), both & 15, both >> 4, steps, minimum_steps)


def _q3_k(blocks: Tensor) -> Unpacked:
    """The third bit of column i of block b is bit b of byte i."""
    codes = _pairs(blocks[..., 32:96]) | _bits(blocks[..., :32], 1).flatten(1) << 2
    low = _bits(blocks[..., 96:104], 4).flatten(2)
    high = _bits(blocks[..., 104:108], 2).flatten(2)
    scales = (low | high << 4).to(torch.int8) - 32
    return Unpacked(codes, scales.flatten(1), steps=_numbers(blocks, 108))


def _of_table(blocks: Tensor, table: Sequence[int]) -> Tensor:
    """Return the values of codes of four bits: byte i has those of columns i and i + 16."""
    codes = _bits(blocks.unflatten(-1, (-1, 16)), 4).flatten(1)
    values = torch.tensor(table, dtype=torch.int8, device=blocks.device)
    return values[codes.int()].view(torch.uint8)


def _iq4_nl(blocks: Tensor) -> Unpacked:
    return Unpacked(_of_table(blocks[..., 2:], IQ4_NL.kvalues), _numbers(blocks, 0))


def _iq4_xs(blocks: Tensor) -> Unpacked:
    low = _bits(blocks[..., 4:8], 4).transpose(-1, -2).flatten(2)
    high = _bits(blocks[..., 2:4], 2).transpose(-1, -2).flatten(2)
    scales = (low | high << 4).to(torch.int8) - 32
    return Unpacked(
        _of_table(blocks[..., 8:], IQ4_NL.kvalues), scales.flatten(1), steps=_numbers(blocks, 0)
    )


def _mxfp4(blocks: Tensor) -> Unpacked:
    """The scale is a power of two, of which the byte is the exponent; the table has halves."""
    exponents = blocks[..., 0].int() - 128
    scales = torch.ldexp(torch.ones_like(exponents, dtype=torch.float32), exponents)
    return Unpacked(_of_table(blocks[..., 1:], FP4), scales)


def _words(blocks: Tensor) -> Tensor:
    return blocks[..., :4].contiguous().view(torch.int32).flatten(1)


def _of_nibbles(blocks: Tensor) -> Unpacked:
    """The lowest byte of the scale is what is taken off each code."""
    scales = (_words(blocks) & ~255).view(torch.float32)
    codes = _bits(blocks[..., 4:].unflatten(-1, (-1, 16)), 4).flatten(1)
    return Unpacked(codes, scales, -blocks[..., 0].float() * scales)


def _of_bytes(blocks: Tensor) -> Unpacked:
    return Unpacked(blocks[..., 4:].flatten(1), _words(blocks).view(torch.float32))


FP4 = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)
FORMATS = {
    "IQ4_NL": BlockFormat(18, 8, 0, _iq4_nl),
    "IQ4_XS": BlockFormat(136, 8, 0, _iq4_xs),
    "MXFP4": BlockFormat(17, 8, 0, _mxfp4),
    "Q2_K": BlockFormat(84, 4, 0, _q2_k),
    "Q3_K": BlockFormat(110, 4, 4, _q3_k),
    "G4_32": BlockFormat(20, 4, 0, _of_nibbles),
    "G4_128": BlockFormat(68, 4, 0, _of_nibbles),
    "G8_128": BlockFormat(132, 8, 0, _of_bytes),
    "Q4_0": BlockFormat(18, 4, 8, _of_32(has_minima=False, has_high=False)),
    "Q4_1": BlockFormat(20, 4, 0, _of_32(has_minima=True, has_high=False)),
    "Q5_0": BlockFormat(22, 5, 16, _of_32(has_minima=False, has_high=True)),
    "Q5_1": BlockFormat(24, 5, 0, _of_32(has_minima=True, has_high=True)),
    "Q8_0": BlockFormat(34, 8, 0, _q8_0),
    "Q4_K": BlockFormat(144, 4, 0, _q4_k),
    "Q5_K": BlockFormat(176, 5, 0, _q5_k),
    "Q6_K": BlockFormat(210, 6, 32, _q6_k),
}
