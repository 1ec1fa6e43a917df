"""Rounding by what a matrix reads: the same blocks, less error of outputs."""

import numpy as np
import pytest
import torch
from torch import Tensor

from draftwerk_tools.quantising.block_codes import CODES, values_of
from draftwerk_tools.quantising.methods.gptq import by_inputs
from draftwerk_tools.quantising.quantised_blocks import quantised


def correlated(tokens: int, width: int) -> Tensor:
    """Return inputs that lie near a few directions."""
    generator = torch.Generator().manual_seed(0)
    few = torch.randn(tokens, 24, generator=generator)
    spread = torch.randn(24, width, generator=generator)
    return few @ spread + 0.1 * torch.randn(tokens, width, generator=generator)


@pytest.mark.parametrize("kind", [kind for kind in CODES if kind != "Q8_0"])
def test_errors_of_correlated_inputs_are_made_up_for(kind: str):
    inputs = correlated(600, 256)
    weight = torch.randn(48, 256, generator=torch.Generator().manual_seed(1))
    before = weight.clone()
    packed = by_inputs((inputs.T @ inputs).double() / len(inputs))(weight, kind)
    plain = quantised(weight.numpy(), kind)
    assert packed.shape == plain.shape and packed.dtype == plain.dtype
    assert torch.equal(weight, before)

    def error(data) -> float:
        return float(((torch.from_numpy(values_of(data, kind)) - weight) @ inputs.T).norm())

    assert error(packed) < 0.6 * error(plain)


def test_inputs_alike_and_apart_are_rounded_to_the_nearest():
    weight = torch.randn(8, 64, generator=torch.Generator().manual_seed(2))
    weight[3, 5] = 0.0
    packed = by_inputs(torch.eye(64).double())(weight, "Q4_0")
    found, plain = (values_of(each, "Q4_0") for each in (packed, quantised(weight.numpy(), "Q4_0")))
    assert np.abs(found - weight.numpy()).max() <= np.abs(plain - weight.numpy()).max() + 1e-6


def test_inputs_that_no_text_has_shown_and_rows_of_zeros():
    ones = by_inputs(torch.zeros(64, 64).double())(torch.ones(4, 64), "Q4_1")
    assert np.isfinite(values_of(ones, "Q4_1")).all()
    zeros = by_inputs(torch.eye(64).double())(torch.zeros(4, 64), "Q4_0")
    assert not values_of(zeros, "Q4_0").any()
