"""Norms: by the root mean square or by mean and variance, of tokens and of heads."""

from types import SimpleNamespace
from typing import Any

import torch

from draftwerk.model.reference.norms import Norms


def norms(norm: str, head_norm: str = "shared", tile: int = 0) -> Norms:
    config: Any = SimpleNamespace(
        graph=SimpleNamespace(norm=norm, head_norm=head_norm), norm_eps=1e-5
    )
    return Norms(config, tile)


VALUES = torch.linspace(-1.0, 2.0, 24).view(3, 8)
WEIGHT = torch.linspace(0.5, 1.5, 8)


def test_values_have_a_root_mean_square_of_one_before_their_weights() -> None:
    found = norms("rms")(VALUES, WEIGHT) / WEIGHT
    assert torch.allclose(found.pow(2).mean(-1), torch.ones(3), atol=1e-3)
    assert norms("rms")(VALUES, None) is VALUES


def test_layer_norms_are_those_of_torch_with_their_biases() -> None:
    bias = torch.linspace(-0.1, 0.1, 8)
    found = norms("layer")(VALUES, torch.cat([WEIGHT, bias]))
    wanted = torch.nn.functional.layer_norm(VALUES, (8,), WEIGHT, bias, 1e-5)
    assert torch.equal(found, wanted)


def test_tiles_change_nothing() -> None:
    assert torch.equal(norms("rms", tile=2)(VALUES, WEIGHT), norms("rms")(VALUES, WEIGHT))


def test_heads_have_weights_of_their_own_or_share_them() -> None:
    heads = VALUES.view(3, 2, 4)
    each = norms("rms", "each").of_heads(heads, WEIGHT)
    for at in range(2):
        own = norms("rms")(heads[:, at], WEIGHT[4 * at : 4 * at + 4])
        assert torch.equal(each[:, at], own)
    shared = norms("rms").of_heads(heads, WEIGHT[:4])
    assert torch.equal(shared, norms("rms")(heads, WEIGHT[:4]))
