"""Products of torch: in tiles of rows, or fast."""

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import linear, pad

from draftwerk.model.checkpoint.weights import Weights

TILE = 32
"""Rows of every product on a CPU, so that a row's bits depend less on how many others there are.

The most up to which oneDNN's bf16 products were measured to be row-invariant.
"""
WIDE_SHARE = 0.25
"""The share of the machine's memory that copies of the matrices in float32 may take."""


class TiledProducts:
    """Multiplies rows [T, in] by weights [out, in]; in tiles unless the device has no need."""

    def __init__(self, tile: int = TILE) -> None:
        self.tile = tile
        self.wide: dict[int, Tensor] = {}
        """Matrices in float32 by the identity of their bf16 ones: for steps of several tokens."""

    def __call__(self, values: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Return [T, out]; a weight of another format than torch's is its own product."""
        if callable(weight):
            found = weight(values)
            return found if bias is None else found + bias
        if self.tile:
            return by_tiles(lambda rows: linear(rows, weight, bias), values, self.tile)
        wide = self.wide.get(id(weight)) if len(values) > 1 else None
        if wide is None:
            return linear(values, weight, bias)
        return linear(values.float(), wide, bias if bias is None else bias.float()).to(values.dtype)

    def prefer_speed(self, weights: Weights, memory_bytes: int) -> None:
        """Give up equal bits in batches of unlike size for speed, on a CPU.

        Without AVX-512, torch's bf16 products are fast for one row only: 16 rows take 2.6 times as
        long as in float32. Where there is memory, matrices are therefore kept in float32 as well.
        """
        if not self.tile:
            return
        self.tile = 0
        matrices = [weights.lm_head, *(each for layer in weights.layers for each in layer.matrices)]
        size = sum(4 * matrix.numel() for matrix in matrices)
        if weights.lm_head.dtype == torch.bfloat16 and size < memory_bytes * WIDE_SHARE:
            self.wide = {id(matrix): matrix.float() for matrix in matrices}


def by_tiles(function: Callable[[Tensor], Tensor], values: Tensor, tile: int) -> Tensor:
    """Return what a function makes of rows [T, ...], always of `tile` rows at a time; 0 for all.

    One shape has one kernel and one order of additions, so a row does not depend on the others.
    """
    if not tile:
        return function(values)
    count = max(1, -(-len(values) // tile)) * tile
    padded = pad(values, (*(0, 0) * (values.dim() - 1), 0, count - len(values)))
    parts = [function(rows) for rows in padded.split(tile)]
    return (parts[0] if len(parts) == 1 else torch.cat(parts))[: len(values)]


class GatherColumns(Protocol):
    """Returns all columns of [T, own columns]; the kind is attended, hidden, ffn or vocab."""

    def __call__(self, own: Tensor, kind: str, /) -> Tensor: ...


def all_mine(own: Tensor, kind: str) -> Tensor:
    """Return the columns of a model that is not divided."""
    return own
