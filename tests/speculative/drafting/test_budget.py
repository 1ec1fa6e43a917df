"""The draft budget against every other choice of nodes."""

import random
from itertools import chain, combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftwerk.speculative.drafting.budget import GAIN_MIN, CandidateNodes, choose_nodes
from draftwerk.speculative.sources.tree import DraftTree
from tests.speculative.sources.trees import grown

seeds = st.integers(0, 2**32)


def best_by_force(trees: list[DraftTree], rooms: list[int], costs: list[float]) -> float:
    """Return the best rate over every set of nodes that is closed under parents."""
    slots = [(row, node) for row, tree in enumerate(trees) for node in range(len(tree))]
    chances = [tree.chances() for tree in trees]
    best = len(trees) / costs[0]
    for chosen in chain.from_iterable(
        combinations(slots, size) for size in range(min(len(slots), len(costs) - 1) + 1)
    ):
        kept = {*chosen}
        closed = all(
            trees[row].parents[node] < 0 or (row, trees[row].parents[node]) in kept
            for row, node in chosen
        )
        rows = [row for row, _ in chosen]
        if closed and all(rows.count(row) <= capacity for row, capacity in enumerate(rooms)):
            gain = sum(chances[row][node] for row, node in chosen)
            best = max(best, (len(trees) + gain) / costs[len(chosen)])
    return best


@settings(deadline=None)
@given(seeds)
def test_no_other_choice_is_better(seed: int) -> None:
    rng = random.Random(seed)
    trees = [grown(rng, rng.randint(0, 4), 3) for _ in range(rng.randint(1, 3))]
    trees = [tree if len(tree) <= 4 else grown(rng, 0, 3) for tree in trees]
    rooms = [rng.randint(0, 4) for _ in trees]
    costs = [rng.uniform(1, 2)]
    while len(costs) <= sum(rooms):
        costs.append(costs[-1] + rng.choice([0.0, 0.0, rng.random()]))
    candidates = [
        CandidateNodes(tree.chances(), capacity)
        for tree, capacity in zip(trees, rooms, strict=True)
    ]
    outcome = choose_nodes(candidates, len(trees), costs)
    best = best_by_force(trees, rooms, costs)
    if (
        best > 1.03 * GAIN_MIN * len(trees) / costs[0]
    ):  # beyond the least gain, and the least chances
        assert outcome.rate == pytest.approx(best, rel=0.03)
    for tree, capacity, nodes in zip(trees, rooms, outcome.nodes, strict=True):
        assert len(nodes) <= capacity
        assert all(tree.parents[node] in (-1, *nodes) for node in nodes), "not closed"


def test_free_slots_are_all_taken_and_dear_ones_none() -> None:
    candidates = [CandidateNodes([0.9, 0.8, 0.7], 3), CandidateNodes([0.5, 0.2], 3)]
    flat, steep = [10.0] * 7, [10.0 + 10 * n for n in range(7)]
    assert [len(nodes) for nodes in choose_nodes(candidates, 2, flat).nodes] == [3, 2]
    assert choose_nodes(candidates, 2, steep).nodes == [[], []]


def test_a_tile_is_filled_once_it_is_begun() -> None:
    """The first slot of a tile may not pay by itself; the whole tile may."""
    candidates = [CandidateNodes([0.9**n for n in range(1, 9)], 8)]
    tiles = [10.0, *[18.0] * 8]
    assert len(choose_nodes(candidates, 1, tiles).nodes[0]) == 8
    assert not choose_nodes([CandidateNodes([0.7], 1)], 1, tiles[:2]).nodes[0]


def test_a_row_without_room_gets_nothing() -> None:
    assert choose_nodes([CandidateNodes([0.9], 0)], 1, [1.0]).nodes == [[]]
