"""Methods by name: what they are made of, what is refused, and what their scales follow."""

import pytest
import torch

from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk_tools.quantising.methods.layer_inputs import LayerInputs
from draftwerk_tools.quantising.methods.method_table import METHODS, method_named


def test_names_and_what_is_joined():
    assert method_named("none") is None
    joint, alone = method_named("awq+gptq"), method_named("smoothquant", 0.5)
    assert joint is not None and alone is not None
    assert (joint.scales, joint.rounding) == (METHODS["awq"].scales, METHODS["gptq"].rounding)
    assert (str(joint), str(alone)) == ("awq+gptq", "smoothquant (alpha 0.5)")
    assert (alone.alphas, alone.rounding) == ((0.5,), None)


@pytest.mark.parametrize(
    ("name", "alpha", "words"),
    [
        ("awk", None, "method 'awk' is none of none, smoothquant, awq, gptq"),
        ("awq+smoothquant", None, r"method 'awq\+smoothquant': both are of one step"),
        ("gptq+gptq", None, "both are of one step"),
        ("awq", 1.5, "alpha 1.5: a number from 0 to 1"),
        ("gptq", 0.5, "alpha 0.5: a number from 0 to 1, of smoothquant and awq"),
        ("none", 0.5, "alpha is of smoothquant and awq, and there is no --method"),
    ],
)
def test_what_is_refused(name: str, alpha: float | None, words: str):
    with pytest.raises(Refused, match=words):
        method_named(name, alpha)


@pytest.mark.parametrize("name", ["smoothquant", "awq"])
def test_large_inputs_get_large_scales(name: str):
    values = torch.randn(50, 8, generator=torch.Generator().manual_seed(0))
    values[:, 2] *= 30
    values[:, 5] = 0
    rule = METHODS[name].scales
    assert rule is not None
    inputs, ones = LayerInputs.of(values), torch.ones(8)
    scales = rule(inputs, ones, 0.5)
    assert scales.argmax() == 2 and scales[2] > 3 * scales[0]
    assert scales[5] == 1 and torch.isfinite(scales).all()
    assert torch.allclose(
        rule(LayerInputs.of(values), torch.ones(8), 0.0)[[0, 1, 2]], torch.ones(3)
    )
