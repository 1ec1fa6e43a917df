"""The inputs of a model's matrices, as methods know it."""

from typing import NamedTuple

import torch
from torch import Tensor

SAMPLED = 256
"""The tokens whose inputs are kept."""


class LayerInputs(NamedTuple):
    """The inputs of matrices that read the same, over the tokens of the model's own texts."""

    squares: Tensor
    """[in, in], the mean of x times its transpose; in float64."""
    peaks: Tensor
    """[in], the farthest from zero."""
    means: Tensor
    """[in], of how far they are from zero."""
    rows: Tensor
    """[tokens, in], of some tokens."""

    @classmethod
    def of(cls, values: Tensor) -> "LayerInputs":
        """Return what is kept of inputs [tokens, in], of one token at least."""
        far = values.abs()
        step = max(1, len(values) // SAMPLED)
        squares = (values.T @ values).double() / len(values)
        return cls(squares, far.amax(0), far.mean(0), values[::step][:SAMPLED].clone())

    def over(self, scales: Tensor) -> "LayerInputs":
        """Return those of inputs that are divided by scales [in]."""
        wide = scales.double()
        squares = self.squares / (wide[:, None] * wide)
        return LayerInputs(squares, self.peaks / scales, self.means / scales, self.rows / scales)


def rounded_inputs(rows: Tensor) -> Tensor:
    """Return inputs [tokens, in] as products read them: in 8 bits, by groups of 32."""
    tokens, width = rows.shape
    groups = torch.nn.functional.pad(rows, (0, -width % 32)).view(tokens, -1, 32)
    steps = groups.abs().amax(-1, keepdim=True) / 127
    quants = (groups / torch.where(steps > 0, steps, 1.0)).round()
    return (quants * steps).view(tokens, -1)[:, :width]
