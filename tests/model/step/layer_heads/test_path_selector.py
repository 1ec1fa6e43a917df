"""Guesses of a place depend on the token before it."""

import torch

from draftwerk.model.step.layer_heads.path_selector import PathSelector


def test_the_one_before_decides_between_equal_logits() -> None:
    predecessors = torch.tensor([[1.0], [-1.0], [0.0]])
    successors = torch.tensor([[4.0], [-4.0], [0.0]])
    selector = PathSelector(predecessors, successors, lambda states: states, 2, torch.arange(3))
    followers = selector(torch.ones(1, 1), torch.tensor([[1.0, 1.0, -9.0]]), 2)
    tokens, losses = followers(0, 0)
    assert tokens == (0, 1) and losses[0] < losses[1]
    assert followers(0, 1)[0] == (1, 0)
