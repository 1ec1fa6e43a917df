"""Rows that a batch adds to hidden states on their way through the layers."""

from typing import NamedTuple

from torch import Tensor


class AddedRows(NamedTuple):
    """Rows for the first layers; none of these is the last."""

    rows: Tensor
    """[layers, n, hidden] in float32."""
    numbers: Tensor
    """[T] int32 the number of a token's row, -1 for none."""

    def behind(self, layer: int, hidden: Tensor) -> Tensor:
        """Return hidden states [T, hidden] with what is added behind a layer."""
        if layer >= len(self.rows):
            return hidden
        added = self.numbers >= 0
        hidden = hidden.clone()
        hidden[added] += self.rows[layer, self.numbers[added]].to(hidden.dtype)
        return hidden
