"""Weights of a few bits: blocks of 32 columns, each with its own half-precision scale.

int8 is GGUF's Q8_0, symmetric; int4 is its Q4_1, sixteen steps up from a minimum. Codes come in
units of 32 bytes a row, a unit of all rows after another, so that a tile of rows is one run of
memory:

    codes     unit 0: | row 0 | row 1 | ... | unit 1: | row 0 | ...
    int8      a unit is one block, a byte a column
    int4      a unit is two blocks, the first in the low halves of its bytes, the second in the high
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import linear, pad

BLOCK = 32
"""Columns that share a scale."""
INT8_MAX = 127
INT4_MAX = 15
REFITS = 2
NUMBERS_AT_ONCE = 1 << 24
"""That are quantised together: 64 MiB of float32, times what the work needs on the way."""


class Quantised(NamedTuple):
    """A matrix [rows, columns] in blocks."""

    codes: Tensor
    """int8 [blocks, rows, 32], or uint8 [blocks / 2, rows, 32]."""
    scales: Tensor
    """float16 [blocks, rows]."""
    minima: Tensor | None
    """float16 [blocks, rows]; None where the blocks are symmetric."""
    columns: int

    @property
    def rows(self) -> int:
        return self.codes.shape[1]

    @property
    def byte_count(self) -> int:
        """What a product reads of it."""
        return sum(
            part.nbytes for part in (self.codes, self.scales, self.minima) if part is not None
        )

    def dequantised(self, dtype: torch.dtype) -> Tensor:
        """Return the matrix that it stands for: the twin of `weight_only.dequantised`."""
        codes = self.codes
        if self.minima is not None:
            codes = torch.stack([codes & 15, codes >> 4], dim=1).flatten(0, 1)
        values = codes.float() * self.scales.float()[..., None]
        if self.minima is not None:
            values += self.minima.float()[..., None]
        return values.transpose(0, 1).reshape(self.rows, -1)[:, : self.columns].to(dtype)

    def product(self, values: Tensor) -> Tensor:
        """Map [T, columns] to [T, rows] in float32: the twin of `weight_only.product`."""
        return linear(values.float(), self.dequantised(torch.float32)).to(values.dtype)


def by_rows(
    quantise: Callable[[Tensor], Quantised], weight: Tensor, row_count: int = 0
) -> Quantised:
    """Quantise some rows at a time: what is needed on the way is several times the matrix."""
    row_count = row_count or max(1, NUMBERS_AT_ONCE // weight.shape[1])
    parts = [quantise(part) for part in weight.split(row_count)]
    codes = torch.cat([part.codes for part in parts], dim=1)
    scales = torch.cat([part.scales for part in parts], dim=1)
    minima = [part.minima for part in parts if part.minima is not None]
    return Quantised(codes, scales, torch.cat(minima, dim=1) if minima else None, weight.shape[1])


def to_int8(weight: Tensor) -> Quantised:
    """Return the nearest codes; a block's largest value has one of the largest."""
    blocks = _blocks(weight, 1)
    scales = (blocks.abs().amax(-1) / INT8_MAX).half()
    codes = _steps(blocks, scales, None).clamp(-INT8_MAX, INT8_MAX).to(torch.int8)
    return Quantised(codes.contiguous(), scales.contiguous(), None, weight.shape[1])


def to_int4(weight: Tensor) -> Quantised:
    """Return codes on the grid from least to greatest, or on one that least squares find better.

    Blocks that were once Q4_1 span their grid, so its ends give back scale and minimum exactly.
    """
    blocks = _blocks(weight, 2)
    low, high = blocks.amin(-1), blocks.amax(-1)
    scales, minima = ((high - low) / INT4_MAX).half(), low.half()
    codes = _steps(blocks, scales, minima)
    error = _error(blocks, codes, scales, minima)
    for _ in range(REFITS):
        others = _refitted(blocks, codes, scales, minima)
        other_codes = _steps(blocks, *others)
        other_error = _error(blocks, other_codes, *others)
        better = other_error < error
        codes = torch.where(better[..., None], other_codes, codes)
        scales = torch.where(better, others[0], scales)
        minima = torch.where(better, others[1], minima)
        error = torch.where(better, other_error, error)
    whole = codes.to(torch.uint8)
    packed = whole[::2] | whole[1::2] << 4
    return Quantised(packed.contiguous(), scales.contiguous(), minima.contiguous(), weight.shape[1])


def _blocks(weight: Tensor, multiple: int) -> Tensor:
    """Return float32 [blocks, rows, 32], a multiple of so many, filled up with zeros."""
    padded = pad(weight.float(), (0, -weight.shape[1] % (BLOCK * multiple)))
    return padded.view(len(weight), -1, BLOCK).transpose(0, 1)


def _steps(blocks: Tensor, scales: Tensor, minima: Tensor | None) -> Tensor:
    """Return the nearest codes, still as float32; 0 where a block has no scale."""
    scale = scales.float()[..., None]
    above = blocks if minima is None else blocks - minima.float()[..., None]
    codes = torch.where(scale > 0, above / scale, 0.0).round()
    return codes if minima is None else codes.clamp(0, INT4_MAX)


def _error(blocks: Tensor, codes: Tensor, scales: Tensor, minima: Tensor) -> Tensor:
    found = codes * scales.float()[..., None] + minima.float()[..., None]
    return (found - blocks).square().sum(-1)


def _refitted(
    blocks: Tensor, codes: Tensor, scales: Tensor, minima: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the least-squares line through (code, value) of every block."""
    codes_sum, values_sum = codes.sum(-1), blocks.sum(-1)
    spread = BLOCK * codes.square().sum(-1) - codes_sum.square()
    slope = (BLOCK * (codes * blocks).sum(-1) - codes_sum * values_sum) / spread.clamp(min=1.0)
    level = (values_sum - slope * codes_sum) / BLOCK
    known = spread > 0
    return torch.where(known, slope.half(), scales), torch.where(known, level.half(), minima)
