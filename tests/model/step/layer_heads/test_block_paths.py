"""The draft tree of a block: its best path is whole, with rivals beside it."""

from types import SimpleNamespace
from typing import Any

import torch

from draftwerk.model.step.layer_heads.block_paths import (
    LEVEL_MAX,
    block_tree,
    independent_guesses,
)

LOSSES = (1, 12, 30)


def start() -> Any:
    def ranked(position: int, tokens: Any, losses: Any) -> list[tuple[float, int]]:
        return sorted(
            ((-lost / 16, token) for token, lost in zip(tokens, losses, strict=True)), reverse=True
        )

    return SimpleNamespace(token=9, position=4, noise=SimpleNamespace(ranked=ranked))


def test_the_best_path_goes_through_all_places() -> None:
    tree = block_tree(start(), range(3), lambda place, _: ((place, 10 + place, 20 + place), LOSSES))
    best, node = list[int](), -1
    while (
        found := next((at for at, each in enumerate(tree) if each.parent == node), None)
    ) is not None:
        best.append(tree[found].token)
        node = found
    assert best == [9, 0, 1]
    levels = [0] * 3
    depths = {-1: -1}
    for at, each in enumerate(tree):
        depths[at] = depths[each.parent] + 1
        levels[depths[at]] += 1
    assert max(levels) <= LEVEL_MAX and levels[0] == 1


def test_independent_guesses_have_the_models_own_numbers() -> None:
    def rank(logits: Any, rows: Any, count: int) -> Any:
        return [((1, 0), (2, 8))[:count] for _ in rows]

    followers = independent_guesses((70, 71), rank)(torch.empty(2, 1), torch.empty(2, 2), 2)
    assert followers(1, 5) == ((71, 70), (2, 8)) == followers(1, 6)
