"""Columns of a product of which each rank computes some."""

from typing import Protocol

from torch import Tensor


class GatherColumns(Protocol):
    """Returns all columns of [T, own columns]; the kind is attended, hidden, ffn or vocab."""

    def __call__(self, own: Tensor, kind: str, /) -> Tensor: ...


def all_mine(own: Tensor, kind: str) -> Tensor:
    """Return the columns of a model that is not divided."""
    return own
