"""The draft budget: which draft-tree nodes of which rows to verify, decided for the whole round.

DSpark Algorithm 1 (arXiv 2607.05147): take slots by falling chance, and keep as many as maximise
tokens per millisecond; none is among the choices.
"""

from collections.abc import Sequence
from typing import NamedTuple


class CandidateNodes(NamedTuple):
    """One row's candidate nodes: chances of their paths, in topological order, and capacity."""

    chances: list[float]
    capacity: int
    weight: float = 1.0
    """Weight of a token of this row, relative to other rows."""


class BudgetChoice(NamedTuple):
    """The nodes chosen, and what they are expected to gain."""

    nodes: list[list[int]]
    """Admitted nodes of each row, parents included."""
    gain: float
    """Tokens that they are expected to add to the round, weighted."""
    rate: float
    """Tokens per millisecond of the whole round, weighted."""
    saved_ms: list[float]
    """Time that each row's nodes are expected to save, their verification deducted."""


GAIN_MIN = 1.03
"""Least relative gain in expected tokens per ms for any draft to be verified."""
CHANCE_MIN = 0.005
"""Slots below this are not looked at."""


def choose_nodes(
    candidates: Sequence[CandidateNodes], row_count: int, costs: Sequence[float]
) -> BudgetChoice:
    """Admit the prefix of all slots, by falling chance, with the best rate.

    `row_count` tokens are certain without drafts; `costs[k]` is what the round costs in ms with k
    drafted tokens, and its length bounds k.
    """
    slots = _ranked(candidates)
    capacities = [each.capacity for each in candidates]
    expected = float(row_count)
    best_rate, best_count, best_gain = GAIN_MIN * expected / costs[0], 0, 0.0
    order: list[tuple[int, int]] = []
    for value, row, node in slots:
        if len(order) + 1 == len(costs):
            break
        if capacities[row] <= 0:
            continue  # and so for all that follow in this row: the tree stays closed
        capacities[row] -= 1
        order.append((row, node))
        expected += value
        rate = expected / costs[len(order)]
        if rate > best_rate:
            best_rate, best_count, best_gain = rate, len(order), expected - row_count
    nodes: list[list[int]] = [[] for _ in candidates]
    saved_ms = [0.0] * len(candidates)
    if not best_count:
        return BudgetChoice(nodes, 0.0, row_count / costs[0], saved_ms)
    price = (costs[best_count] - costs[0]) / best_count
    for row, node in order[:best_count]:
        nodes[row].append(node)
        saved_ms[row] += candidates[row].chances[node] * candidates[row].weight / best_rate - price
    return BudgetChoice(nodes, best_gain, best_rate, saved_ms)


def _ranked(candidates: Sequence[CandidateNodes]) -> list[tuple[float, int, int]]:
    """Return (value, row, node), best first; equals keep their order, so parents come first."""
    slots = [
        (chance * each.weight, row, node)
        for row, each in enumerate(candidates)
        if each.capacity > 0
        for node, chance in enumerate(each.chances)
        if chance > CHANCE_MIN
    ]
    slots.sort(key=_value, reverse=True)
    return slots


def _value(slot: tuple[float, int, int]) -> float:
    return slot[0]
