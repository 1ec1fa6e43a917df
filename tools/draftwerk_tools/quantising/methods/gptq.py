"""GPTQ: errors of a column are made up for by those behind it (Frantar and others, 2210.17323).

Columns are rounded in blocks of their type, whose scales are chosen as a block is reached, of its
values as they have become.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from torch import Tensor

from draftwerk_tools.quantising.block_codes import (
    CODES,
    PackedBytes,
    scales_and_offsets,
    with_quants,
)
from draftwerk_tools.quantising.quantised_blocks import quantised
from draftwerk_tools.quantising.searches import Floats

RowRounding = Callable[[Tensor, str], PackedBytes]
"""From a matrix [out, in] and a type to its blocks."""
DAMPING = 0.01
"""The share of the mean square of inputs that is added to each: those that texts have not shown."""


def by_inputs(squares: Tensor) -> RowRounding:
    """Return what rounds matrices that read inputs of these mean squares [in, in]."""
    return partial(rounded, _spread(squares))


def rounded(spread: Floats, weight: Tensor, kind: str) -> PackedBytes:
    """Return a matrix [out, in] in blocks of a type in `CODES` [out, bytes a row]."""
    width, _ = GGML_QUANT_SIZES[GGMLQuantizationType[kind]]
    columns = np.ascontiguousarray(weight.numpy().T)
    parts: list[PackedBytes] = []
    for at in range(0, len(columns), width):
        block = slice(at, at + width)
        packed, errors = _rounded_block(columns[block], kind, spread[block, block])
        columns[at + width :] -= spread[block, at + width :].T @ errors
        parts.append(packed)
    return np.concatenate(parts, axis=1)


def _spread(squares: Tensor) -> Floats:
    """Return how an error of one column is spread over those behind it [in, in]."""
    damped = squares.clone()
    diagonal = damped.diagonal()
    diagonal += DAMPING * diagonal.mean().clamp(min=1e-12)
    # U of the inverse = U^T U is the inverse of R, upper, of the squares = R R^T.
    upper = torch.linalg.cholesky(damped.flip(0, 1)).flip(0, 1)
    ones = torch.eye(len(damped), dtype=damped.dtype)
    return torch.linalg.solve_triangular(upper, ones, upper=True).float().numpy()


def _rounded_block(columns: Floats, kind: str, spread: Floats) -> tuple[PackedBytes, Floats]:
    """Return columns [in, out] in one block of each row, and their errors as others make up for."""
    packed = quantised(np.ascontiguousarray(columns.T), kind)
    scales, offsets = (np.ascontiguousarray(each.T) for each in scales_and_offsets(packed, kind))
    steps = np.where(scales == 0, np.float32(1), scales)
    levels = np.array(CODES[kind].levels, np.float32)
    between = (levels[1:] + levels[:-1]) / 2
    quants, errors = np.empty(columns.shape, np.uint8), np.empty_like(columns)
    for each, column in enumerate(columns):
        chosen = np.searchsorted(between, (column - offsets[each]) / steps[each])
        found = levels[chosen] * scales[each] + offsets[each]
        errors[each] = (column - found) / spread[each, each]
        columns[each + 1 :] -= spread[each, each + 1 :, None] * errors[each]
        quants[each] = chosen
    return with_quants(packed, kind, quants.T), errors
