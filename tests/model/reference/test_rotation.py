"""Rotations keep lengths, and a dot product depends on the distance alone."""

from types import SimpleNamespace
from typing import Any

import torch

from draftwerk.model.checkpoint.config import Rotary
from draftwerk.model.reference.rotation import Rotaries


def rotaries() -> Rotaries:
    graph = SimpleNamespace(rotary_rounding="result", temperature_beta=0.0)
    config: Any = SimpleNamespace(rotaries=(Rotary((1.0, 0.1), 1.0),), graph=graph)
    return Rotaries(config, torch.device("cpu"))


def test_scores_depend_on_the_distance_and_dimensions_behind_stay() -> None:
    found = rotaries()
    heads = torch.linspace(-1.0, 1.0, 6).view(1, 1, 6).expand(4, 1, 6)
    (rotation,) = found.at(torch.tensor([0, 3, 10, 13]), torch.float32)
    moved = found.rotated(heads, rotation)
    assert torch.equal(moved[..., 4:], heads[..., 4:]) and torch.equal(moved[0], heads[0])
    assert torch.allclose(moved.norm(dim=-1), heads.norm(dim=-1))
    scores = (moved[0, 0] @ moved[1, 0], moved[2, 0] @ moved[3, 0])
    assert torch.allclose(*scores, atol=1e-5)


def test_queries_stay_where_a_family_has_no_temperature() -> None:
    queries = torch.ones(2, 1, 4)
    assert rotaries().scaled_by_position(queries, torch.tensor([0, 9])) is queries
