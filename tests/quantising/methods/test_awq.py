"""AWQ: what reads large activations has a larger scale."""

import torch

from draftwerk_tools.quantising.methods.awq import aware_scales
from draftwerk_tools.quantising.methods.layer_inputs import LayerInputs

MEANS = torch.tensor([1.0, 4.0, 16.0])


def test_scales_grow_with_the_inputs_by_their_power() -> None:
    inputs = LayerInputs(torch.eye(3), MEANS, MEANS, torch.ones(1, 3))
    found = aware_scales(inputs, torch.ones(3), 0.5)
    assert torch.allclose(found / found[0], MEANS**0.5)
    assert torch.allclose(aware_scales(inputs, torch.ones(3), 0.0), torch.ones(3))
