"""The twin of `int4` keys and values: levels, turned heads, and what is learnt of a text."""

import torch

from tests.model.native.kept_heads import hadamard, kept, learnt_form, normal_levels, rounded_heads


def heads(shift: float = 0.0) -> torch.Tensor:
    return torch.randn(400, 3, 64, generator=torch.Generator().manual_seed(1)) + shift


def test_levels_are_the_best_for_normal_numbers() -> None:
    """The errors are those of Max's table (IRE Transactions on Information Theory, 1960)."""
    for bits, error in ((1, 0.3634), (2, 0.1175), (4, 0.00950)):
        levels, numbers = normal_levels(bits), heads().flatten()
        kept = levels[(numbers[:, None] - levels).abs().argmin(1)]
        assert abs((kept - numbers).square().mean().item() / error - 1) < 0.05


def test_a_head_is_turned_and_turned_back() -> None:
    turn = hadamard(64)
    assert torch.allclose(turn @ turn, torch.eye(64), atol=1e-6)
    assert torch.equal(turn, turn.T)
    error = (rounded_heads(heads(), 8) - heads()).square().mean()
    assert error < 1e-3


def test_keys_are_kept_less_the_nearer_of_two() -> None:
    keys = heads(shift=5.0)
    keys[0] = -20.0
    learnt = learnt_form(heads().repeat(1, 2, 1), keys[1:], keys[0])
    errors = [(kept(keys, 4, each) - keys).square().mean((1, 2)) for each in (None, learnt)]
    assert errors[1][0] < 1e-6
    assert errors[1][1:].mean() < 0.1 * errors[0][1:].mean()


def test_channels_that_are_asked_for_most_have_the_least_errors() -> None:
    queries = heads() * torch.linspace(0.1, 3.0, 64)
    keys = heads().flip(0)
    errors = [kept(keys, 4, each) - keys for each in (None, learnt_form(queries, keys, keys[0]))]
    scores = [torch.einsum("qhd,khd->qkh", queries, each).square().mean() for each in errors]
    assert scores[1] < 0.9 * scores[0]
