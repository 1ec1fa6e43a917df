"""GPTQ: errors of a column are made up for by those behind it (Frantar and others, 2210.17323).

Columns are rounded in blocks of their type, whose scales are chosen as a block is reached, of its
values as they have become.
"""

import numpy as np
import torch
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from torch import Tensor

from draftwerk.model.checkpoint.quantising.block_codes import (
    CODES,
    PackedBytes,
    scales_and_offsets,
    with_quants,
)
from draftwerk.model.checkpoint.quantising.quantised_blocks import quantised

DAMPING = 0.01
"""Of the mean square of inputs, added to each: those that texts have not shown."""


def rounded_by_inputs(weight: Tensor, kind: str, squares: Tensor) -> PackedBytes:
    """Return a matrix [out, in] in blocks of a type in `CODES` [out, bytes a row]."""
    width, _ = GGML_QUANT_SIZES[GGMLQuantizationType[kind]]
    spread = _spread(squares)
    work = weight.clone()
    parts: list[PackedBytes] = []
    for at in range(0, work.shape[1], width):
        block = slice(at, at + width)
        packed, errors = _rounded_block(work[:, block], kind, spread[block, block])
        work[:, at + width :] -= errors @ spread[block, at + width :]
        parts.append(packed)
    return np.concatenate(parts, axis=1)


def _spread(squares: Tensor) -> Tensor:
    """Return how an error of one column is spread over those behind it [in, in]."""
    damped = squares.clone()
    diagonal = damped.diagonal()
    diagonal += DAMPING * diagonal.mean().clamp(min=1e-12)
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(damped))
    return torch.linalg.cholesky(inverse, upper=True).float()


def _rounded_block(columns: Tensor, kind: str, spread: Tensor) -> tuple[PackedBytes, Tensor]:
    """Return columns in one block a row, and their errors as those behind are to be changed."""
    packed = quantised(columns.contiguous().numpy(), kind)
    scales, offsets = (torch.from_numpy(each) for each in scales_and_offsets(packed, kind))
    steps = torch.where(scales == 0, 1.0, scales)
    levels = torch.tensor(CODES[kind].levels, dtype=torch.float32)
    between = (levels[1:] + levels[:-1]) / 2
    quants, errors = torch.empty_like(columns, dtype=torch.uint8), torch.empty_like(columns)
    for each in range(columns.shape[1]):
        wanted = (columns[:, each] - offsets[:, each]) / steps[:, each]
        chosen = torch.bucketize(wanted, between)
        found = levels[chosen] * scales[:, each] + offsets[:, each]
        errors[:, each] = (columns[:, each] - found) / spread[each, each]
        columns[:, each + 1 :] -= errors[:, each, None] * spread[each, each + 1 :]
        quants[:, each] = chosen
    return with_quants(packed, kind, quants.numpy()), errors
