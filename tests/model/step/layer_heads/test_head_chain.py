"""Chains go on from the best guess, as long as their path is likely."""

from types import SimpleNamespace
from typing import Any

import torch

from draftwerk.model.draft_head.tree import LEVELS
from draftwerk.model.step.layer_heads.head_chain import HeadChain, grow_chains


def start(token: int) -> Any:
    def ranked(position: int, tokens: Any, losses: Any) -> list[tuple[float, int]]:
        pairs = zip(tokens, losses, strict=True)
        return sorted(((-lost / 16, token) for token, lost in pairs), reverse=True)

    noise = SimpleNamespace(ranked=ranked, sampled=False)
    return SimpleNamespace(token=token, position=3, noise=noise, state=torch.zeros(2))


def test_each_guess_is_made_behind_the_best_before_it() -> None:
    said = list[list[int]]()

    def guess(chains: Any, depth: int, looked: int) -> Any:
        said.append([chain.said for chain in chains])
        best = [((chain.said + 1, chain.said + 50), (0, 400)) for chain in chains]
        return best, torch.zeros(len(chains), 2)

    trees = grow_chains([start(10), start(20)], guess, budget=3)
    assert said == [[10, 20], [11, 21], [12, 22]]
    assert [[node.token for node in tree] for tree in trees] == [[10, 11, 12], [20, 21, 22]]
    assert [node.parent for node in trees[0]] == [-1, 0, 1]


def test_an_unlikely_path_ends() -> None:
    chain = HeadChain(start(1))
    tokens, evenly = (0, 1), (16, 16)
    steps = 0
    while chain.extend(torch.zeros(2), tokens, evenly) and steps < LEVELS:
        steps += 1
    assert 0 < steps < LEVELS and len(chain.nodes) == steps + 1
