"""The draft budget: which draft-tree nodes of which rows to verify, decided for the whole round.

DSpark Algorithm 1 (arXiv 2607.05147): take slots by falling chance, and keep as many as maximise
tokens per millisecond; none is among the choices.
"""

from collections.abc import Sequence
from operator import itemgetter
from typing import NamedTuple


class CandidateNodes(NamedTuple):
    """One row's candidate nodes: chances of their paths, in topological order, and capacity."""

    chances: list[float]
    capacity: int
    weight: float = 1.0
    """Weight of a token of this row, relative to other rows."""
    context_ms: float = 0.0
    """The time that each node adds to the round for the context that it attends to."""


class BudgetChoice(NamedTuple):
    """The nodes chosen, and what they are expected to gain."""

    nodes: list[list[int]]
    """Admitted nodes of each row, parents included."""
    gain: float
    """Tokens that they are expected to add to the round, weighted."""
    rate: float
    """Tokens per millisecond of the whole round, weighted."""
    node_ms: float
    """The time of verifying each of them, but for its context."""

    def share(self, row: CandidateNodes, nodes: Sequence[int]) -> "DraftShare":
        """Return what some admitted nodes of a row have of the gain and of the time."""
        gain = row.weight * sum(row.chances[node] for node in nodes)
        return DraftShare(gain, len(nodes) * (self.node_ms + row.context_ms))

    def token_ms(self, row_count: int, without: "DraftShare") -> float:
        """Return the time of a token in this round if it had been without those drafts."""
        tokens = row_count + self.gain
        return (tokens / self.rate - without.ms) / (tokens - without.gain)


class DraftShare(NamedTuple):
    """Part of a round's drafts."""

    gain: float
    """Tokens that they are expected to add, weighted."""
    ms: float
    """The time that they add."""


GAIN_MIN = 1.03
"""Least relative gain in expected tokens per ms for any draft to be verified."""
CHANCE_MIN = 0.005
"""Slots below this are not looked at."""


def choose_nodes(
    candidates: Sequence[CandidateNodes], row_count: int, costs: Sequence[float]
) -> BudgetChoice:
    """Admit the prefix of all slots, by falling chance, with the best rate.

    `row_count` tokens are certain without drafts; `costs[k]` is what the round costs in ms with k
    drafted tokens, but for the context that these attend to, and its length bounds k.
    """
    slots = _ranked(candidates, (costs[-1] - costs[0]) / max(1, len(costs) - 1))
    capacities = [each.capacity for each in candidates]
    expected = float(row_count)
    best_rate, best_count, best_gain = GAIN_MIN * expected / costs[0], 0, 0.0
    context_ms = 0.0
    order: list[tuple[int, int]] = []
    for _, value, row, node in slots:
        if len(order) + 1 == len(costs):
            break
        if capacities[row] <= 0:
            continue  # and so for all that follow in this row: the tree stays closed
        capacities[row] -= 1
        order.append((row, node))
        expected += value
        context_ms += candidates[row].context_ms
        rate = expected / (costs[len(order)] + context_ms)
        if rate > best_rate:
            best_rate, best_count, best_gain = rate, len(order), expected - row_count
    nodes: list[list[int]] = [[] for _ in candidates]
    if not best_count:
        return BudgetChoice(nodes, 0.0, row_count / costs[0], 0.0)
    for row, node in order[:best_count]:
        nodes[row].append(node)
    return BudgetChoice(nodes, best_gain, best_rate, (costs[best_count] - costs[0]) / best_count)


def _ranked(
    candidates: Sequence[CandidateNodes], product_ms: float
) -> list[tuple[float, float, int, int]]:
    """Return (value per ms, value, row, node), best first; equals keep their order, so parents come
    first. A node costs about `product_ms` and its context.
    """
    least = min((each.context_ms for each in candidates), default=0.0)
    slots: list[tuple[float, float, int, int]] = []
    for row, each in enumerate(candidates):
        if each.capacity > 0:
            cost = product_ms + each.context_ms
            # 1 where all contexts are alike: then the order is that of the values.
            share = (product_ms + least) / cost if cost > 0.0 else 1.0
            slots.extend(
                (share * chance * each.weight, chance * each.weight, row, node)
                for node, chance in enumerate(each.chances)
                if chance > CHANCE_MIN
            )
    slots.sort(key=itemgetter(0), reverse=True)
    return slots
