"""The products of draft heads that are layers beside their layers, and where their tensors are."""

from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace
from functools import partial
from typing import Any, TypeVar, cast

import torch
from torch import Tensor
from torch.nn.functional import linear

from draftwerk.model.checkpoint.weights import WeightMatrix
from draftwerk.model.native.pool import Pool
from draftwerk.model.native.stored import GROUP, PackedMatrix, quantised, rows_of
from draftwerk.model.step.layer_heads.eagle import RowProduct

T = TypeVar("T")
KIND = "Q8_0"
"""The type of matrices, but for fp32."""


def row_product(matrix: Tensor, dtype: str, pool: Pool) -> RowProduct:
    """Return products with a matrix, in eight bits where blocks are whole and but for fp32."""
    if dtype == "fp32" or matrix.shape[1] % GROUP:
        return partial(linear, weight=matrix.float())
    return PackedMatrix((quantised(matrix, KIND, pool),), pool).products


def moved(held: T, device: torch.device) -> T:
    """Return a structure with all tensors that it holds on a device."""
    if isinstance(held, Tensor):
        return cast(T, held.to(device))
    if isinstance(held, dict):
        return cast(T, {key: moved(each, device) for key, each in cast(Any, held).items()})
    if is_dataclass(held) and not isinstance(held, type):
        own = {each.name: moved(getattr(held, each.name), device) for each in fields(held)}
        return cast(T, replace(held, **own))
    if isinstance(held, tuple | list):
        parts = [moved(each, device) for each in cast(Any, held)]
        make = getattr(held, "_make", type(cast(Any, held)))
        return cast(T, make(parts))
    return held


def embedded(embedding: WeightMatrix, tokens: Sequence[int]) -> Tensor:
    """Return rows of an embedding in float32."""
    return rows_of(embedding, torch.tensor(tokens)).float()


def scaled(head: RowProduct, scale: float, cap: float) -> RowProduct:
    """Return what makes logits of rows, scaled and then softly capped; a cap of 0 is none."""

    def logits(rows: Tensor) -> Tensor:
        found = head(rows) * scale
        return (found / cap).tanh() * cap if cap else found

    return logits
