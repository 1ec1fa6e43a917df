"""A dense FFN: a gate, its activation, and the way back."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from draftwerk.model.reference.feed_forward import ACTIVATIONS, FeedForward
from draftwerk.model.reference.tiled_products import all_mine

GATE, UP = torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([[2.0, 0.0], [0.0, 3.0]])
DOWN = torch.tensor([[1.0, 1.0], [0.0, 1.0]])
ROWS = torch.tensor([[1.0, -1.0], [0.5, 2.0]])


def linear(rows: Any, weight: Any, bias: Any) -> Any:
    return rows @ weight.T


def fed(activation: str, gated: bool) -> torch.Tensor:
    graph = SimpleNamespace(activation=activation, is_gated=gated, gate_limit=0.0)
    config: Any = SimpleNamespace(graph=graph, experts=None)
    gate_up = torch.cat([GATE, UP]) if gated else GATE
    layer: Any = SimpleNamespace(
        experts=None, dense=(gate_up, DOWN), gate_up_bias=None, down_bias=None
    )
    product: Any = linear
    norm: Any = None
    forward = FeedForward(config, product, all_mine, norm)
    return forward(layer, ROWS, ROWS, lambda kind, rows, found: found)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_a_gate_is_weighed_with_what_it_lets_through(activation: str) -> None:
    gated = ACTIVATIONS[activation](ROWS @ GATE.T) * (ROWS @ UP.T)
    assert torch.allclose(fed(activation, True), gated @ DOWN.T)


def test_without_a_gate_the_activation_is_all() -> None:
    assert torch.allclose(fed("relu_squared", False), ROWS.relu().square() @ DOWN.T)
