"""The search for scales, and what products are taken to read."""

import torch

from draftwerk_tools.quantising.methods.layer_inputs import (
    SAMPLED,
    LayerInputs,
    rounded_inputs,
)
from draftwerk_tools.quantising.methods.scale_search import (
    RoundedMatrix,
    best_scales,
    centred,
)


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(len(shape)))


def test_the_scales_that_hide_an_outlier_are_found():
    values = drawn(300, 64)
    values[:, 7] *= 40
    weight, hiding = drawn(16, 64), torch.ones(64)
    weight[:, 7] /= 40
    hiding[7] = 40.0
    tried = [torch.ones(64), hiding, 1 / hiding]
    found = best_scales([RoundedMatrix(weight, "Q8_0")], LayerInputs.of(values), tried)
    assert torch.equal(found, hiding)


def test_inputs_as_they_are_once_scaled():
    values, scales = drawn(700, 6), torch.tensor([1.0, 2.0, 4.0, 0.5, 3.0, 1.0])
    found, expected = LayerInputs.of(values).over(scales), LayerInputs.of(values / scales)
    for one, other in zip(found, expected, strict=True):
        assert torch.allclose(one, other, rtol=1e-5)
    assert len(found.rows) == SAMPLED


def test_inputs_are_rounded_by_groups():
    values = drawn(5, 40)
    values[:, 3] = 1000.0
    off = (rounded_inputs(values) - values).abs()
    assert off[:, :32].max() <= 1000 / 254 + 1e-3
    assert off[:, 32:].max() <= values[:, 32:].abs().max() / 254 + 1e-6


def test_scales_of_no_use_are_ones():
    scales = centred(torch.tensor([0.0, 4.0, torch.inf, 1.0, torch.nan]))
    assert scales.tolist() == [1.0, 2.0, 1.0, 0.5, 1.0]
