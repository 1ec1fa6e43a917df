"""Products of heads: scaled and capped logits, and structures on another device."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from draftwerk.model.process.drafters.head_products import moved, scaled


class Pair(NamedTuple):
    first: Tensor
    name: str


@dataclass(frozen=True)
class Held:
    pair: Pair
    named: dict[str, Tensor]
    listed: list[Tensor]


def test_logits_are_scaled_and_then_capped() -> None:
    rows = torch.tensor([[1.0, -2.0, 100.0]])
    assert torch.equal(scaled(lambda found: found, 2.0, 0.0)(rows), 2.0 * rows)
    capped = scaled(lambda found: found, 2.0, 30.0)(rows)
    assert torch.allclose(capped, (2.0 * rows / 30.0).tanh() * 30.0) and capped.max() <= 30.0


def test_every_tensor_of_a_structure_moves_and_nothing_else_changes() -> None:
    held = Held(Pair(torch.ones(2), "x"), {"a": torch.ones(3)}, [torch.ones(1)])
    found = moved(held, torch.device("meta"))
    tensors = (found.pair.first, found.named["a"], *found.listed)
    assert all(tensor.device.type == "meta" for tensor in tensors)
    assert isinstance(found.pair, Pair) and found.pair.name == "x"
