"""A search for scales of inputs: those with which products are nearest to what they should be."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from draftwerk_tools.quantising.block_codes import values_of
from draftwerk_tools.quantising.methods.layer_inputs import LayerInputs, rounded_inputs
from draftwerk_tools.quantising.quantised_blocks import quantised

ROWS = 256
"""The rows of a matrix that are tried: rows are rounded each for itself."""


class RoundedMatrix(NamedTuple):
    """A matrix [out, in], and the type that it is to have."""

    weight: Tensor
    kind: str

    @property
    def sample(self) -> "RoundedMatrix":
        """Some of its rows."""
        step = -(-len(self.weight) // ROWS)
        return RoundedMatrix(self.weight[::step], self.kind)

    def after(self, scales: Tensor) -> Tensor:
        """Return what is left of its values once they are scaled and rounded."""
        scaled = (self.weight * scales).contiguous().numpy()
        return torch.from_numpy(values_of(quantised(scaled, self.kind), self.kind))


def best_scales(
    matrices: Sequence[RoundedMatrix], inputs: LayerInputs, candidates: Iterable[Tensor]
) -> Tensor:
    """Return the scales [in] whose products have the least squared error, inputs rounded too."""
    sampled = [each.sample for each in matrices]
    expected = [inputs.rows @ each.weight.T for each in sampled]

    def error_of(scales: Tensor) -> float:
        read = rounded_inputs(inputs.rows / scales)
        found = [read @ each.after(scales).T for each in sampled]
        pairs = zip(found, expected, strict=True)
        return float(sum((one - other).square().sum() for one, other in pairs))

    return min(candidates, key=error_of)


def centred(scales: Tensor) -> Tensor:
    """Return positive scales whose least and most are as far from 1; those of no use are 1."""
    usable = torch.isfinite(scales) & (scales > 0)
    scales = torch.where(usable, scales, 1.0)
    scales = scales / (scales.min() * scales.max()).sqrt()
    return torch.where(usable, scales, 1.0).clamp(1e-4, 1e4)
