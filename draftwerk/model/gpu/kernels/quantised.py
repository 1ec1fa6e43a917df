"""Weights of a few bits: blocks of 32 columns, each with its own half-precision scale.

int8 is GGUF's Q8_0, symmetric; int4 is its Q4_1, sixteen steps up from a minimum. Codes come in
units of 32 bytes a row, a unit of all rows after another, so that a tile of rows is one run of
memory:

    codes     unit 0: | row 0 | row 1 | ... | unit 1: | row 0 | ...
    int8      a unit is one block, a byte a column
    int4      a unit is two blocks, the first in the low halves of its bytes, the second in the high
    high      what codes have beyond four bits: a unit is 4 blocks of two bits, or 8 of one

Blocks of a GGUF are arranged so without loss (`model.gpu.kernels.gguf_blocks`). Those of its K
types have scales in whole numbers of steps, which 256 columns share.
"""

from collections.abc import Callable, Sequence
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
"""Numbers that are quantised together: 64 MiB of float32, times what the work needs on the way."""
PLAIN_FIELDS = ("columns", "offset")


class Quantised(NamedTuple):
    """A matrix [rows, columns] in blocks."""

    codes: Tensor
    """int8 [blocks, rows, 32], or uint8 [blocks / 2, rows, 32]."""
    scales: Tensor
    """[groups, rows] of 32 or 16 columns, in halves or float32; or whole numbers of `steps`, in a
    byte."""
    minima: Tensor | None
    """As the scales; None where the blocks are symmetric."""
    columns: int
    high: Tensor | None = None
    """uint8 [blocks / 4 or / 8, rows, 32]."""
    steps: Tensor | None = None
    """float16 [blocks / 8, rows]."""
    minimum_steps: Tensor | None = None
    offset: int = 0
    """The number that is taken off a code."""

    @property
    def rows(self) -> int:
        return self.codes.shape[1]

    @property
    def tensors(self) -> tuple[Tensor | None, ...]:
        """All of them, in the order that kernels take."""
        return self.codes, self.high, self.scales, self.minima, self.steps, self.minimum_steps

    @property
    def block_count(self) -> int:
        return len(self.codes) * (1 if self.codes.dtype == torch.int8 else 2)

    @property
    def bits(self) -> int:
        """The bits of a code."""
        if self.codes.dtype == torch.int8:
            return 8
        return 4 if self.high is None else 4 + 8 * len(self.high) // self.block_count

    @property
    def group(self) -> int:
        """How many columns share a scale."""
        return BLOCK * self.block_count // len(self.scales)

    @property
    def byte_count(self) -> int:
        """The bytes of it that a product reads."""
        return sum(part.nbytes for part in self.tensors if part is not None)

    def dequantised(self, dtype: torch.dtype) -> Tensor:
        """Return the matrix that it stands for: the twin of `weight_only.dequantised`."""
        groups = self._whole_codes().float().unflatten(2, (-1, self.group)).transpose(1, 2)
        values = groups.flatten(0, 1) * _widened(self.scales, self.steps)
        if self.minima is not None:
            values += _widened(self.minima, self.minimum_steps)
        return values.transpose(0, 1).reshape(self.rows, -1)[:, : self.columns].to(dtype)

    def _whole_codes(self) -> Tensor:
        """Return int8 [blocks, rows, 32]."""
        if self.codes.dtype == torch.int8:
            return self.codes
        codes = torch.stack([self.codes & 15, self.codes >> 4], dim=1).flatten(0, 1)
        if self.high is not None:
            bits = self.bits - 4
            shifts = torch.arange(0, 8, bits, dtype=torch.uint8, device=codes.device)
            parts = self.high[:, None] >> shifts[:, None, None] & (1 << bits) - 1
            codes = codes | parts.flatten(0, 1) << 4
        return codes.to(torch.int8) - self.offset

    def product(self, values: Tensor) -> Tensor:
        """Map [T, columns] to [T, rows] in float32: the twin of `weight_only.product`."""
        return linear(values.float(), self.dequantised(torch.float32)).to(values.dtype)


def _widened(scales: Tensor, steps: Tensor | None) -> Tensor:
    """Return float32 [groups, rows, 1]."""
    found = scales.float()
    if steps is not None:
        found = found * steps.float().repeat_interleave(len(scales) // len(steps), dim=0)
    return found[..., None]


def by_rows(
    quantise: Callable[[Tensor], Quantised], weight: Tensor, row_count: int = 0
) -> Quantised:
    """Quantise some rows at a time: what is needed on the way is several times the matrix."""
    row_count = row_count or max(1, NUMBERS_AT_ONCE // weight.shape[1])
    return joined([quantise(part) for part in weight.split(row_count)])


def joined(parts: Sequence[Quantised]) -> Quantised:
    """Return matrices of one format, one above the other."""
    if len(parts) == 1:
        return parts[0]

    def above(name: str) -> Tensor | None:
        found = [getattr(part, name) for part in parts]
        return None if found[0] is None else torch.cat(found, dim=1)

    tensors = {name: above(name) for name in parts[0]._fields if name not in PLAIN_FIELDS}
    return parts[0]._replace(**tensors)


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
