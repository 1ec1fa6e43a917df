"""A model that is not divided has all columns."""

import torch

from draftwerk.model.reference.columns import all_mine


def test_all_columns_are_there() -> None:
    own = torch.ones(2, 3)
    assert all(all_mine(own, kind) is own for kind in ("attended", "hidden", "ffn", "vocab"))
