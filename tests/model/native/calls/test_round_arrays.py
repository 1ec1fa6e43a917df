"""States of a batch are checked before the library is told of them."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from draftwerk.model.batch.batch import Pages
from draftwerk.model.batch.batch_state import BatchState
from draftwerk.model.native.calls.round_arrays import StateRows

CONFIG: Any = SimpleNamespace(state_size=4)


def pages(slots: int) -> Pages:
    keys = torch.zeros(1, 2, 4, 1, 2)
    return Pages(keys, keys, states=torch.zeros(slots, 4))


def batch(*states: BatchState, tokens: int = 4) -> Any:
    return SimpleNamespace(states=states, tokens=torch.zeros(tokens))


def test_states_cover_the_tokens_with_their_nodes() -> None:
    found = StateRows(
        batch(BatchState(0, 2, (-1,), 0, -1, 1), BatchState(3, 1, (), 5, 0, 0)), pages(2), CONFIG
    )
    assert found.node_starts == {0: 0, 3: 1}


@pytest.mark.parametrize(
    ("states", "words"),
    [
        ((), "without states"),
        ((BatchState(0, 3, (), 0, -1, 1),), "do not cover"),
        ((BatchState(0, 4, (), 0, -1, 9),), "outside its slots"),
        ((BatchState(0, 4, (), 0, -1, 1, saves=((4, 9),)),), "do not cover"),
    ],
)
def test_what_would_write_elsewhere_is_refused(states: tuple[BatchState, ...], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        StateRows(batch(*states), pages(2), CONFIG)
