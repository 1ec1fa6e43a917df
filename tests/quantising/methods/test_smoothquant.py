"""SmoothQuant: peaks of inputs over those of weights."""

import torch

from draftwerk_tools.quantising.methods.layer_inputs import LayerInputs
from draftwerk_tools.quantising.methods.smoothquant import smooth_scales

PEAKS = torch.tensor([1.0, 4.0, 16.0])


def test_outliers_move_into_the_weights() -> None:
    inputs = LayerInputs(torch.eye(3), PEAKS, torch.ones(3), torch.ones(1, 3))
    found = smooth_scales(inputs, torch.ones(3), 0.5)
    assert torch.allclose(found / found[0], PEAKS**0.5)
    even = smooth_scales(inputs, PEAKS, 0.5)
    assert torch.allclose(even, torch.ones(3))
