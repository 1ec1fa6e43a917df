"""The worth of a node of a beam draft tree: its chance to survive, and the price it must beat.

A candidate whose score leads its rivals by x nats, found after k tokens of context, survives with

    chance(x, k) = 1 / (1 + exp(-slope_k * (x - edge_k)))

A node is drafted if the round reaches its level (r) and the node survives (p) often enough:

    r * p >= price(n) = width * T'(n) / (share * T)

T is what the round costs without drafts, share the part of it that is due to the search's rows,
and T'(n) what one more node costs after n: a step saved saves share * T, one survivor of it the
width-th part. docs/architecture.md derives it. Of a model with recurrent layers a survivor is
computed once more: then r * p * (1 - price) >= price.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp
from typing import NamedTuple


class Sureness(NamedTuple):
    """How surely it is known what follows a node."""

    edge: float
    """The lead over its rivals, in nats, with which a candidate survives half the time."""
    slope: float
    """The slope of its log-odds, per nat."""
    doubt: float
    """How much its level depends on the accuracy of guesses: the exponent of that."""


SURENESS = (
    Sureness(1.2, 1.1, 1.0),
    Sureness(0.6, 1.6, 1.0),
    Sureness(0.4, 1.9, 0.9),
    Sureness(0.35, 2.1, 0.8),
    Sureness(0.2, 3.0, 0.6),
    Sureness(0.15, 3.0, 0.6),
    Sureness(0.1, 6.0, 0.0),
)
"""By the number of tokens of context after which the target was evaluated in this search, then
`KNOWN`. Edges and slopes were fitted to searches of the built-in model over Spec-Bench, by maximum
likelihood; doubts are set by hand."""
KNOWN = 6
"""The row for candidates that the target itself computed: only other branches are uncertain."""
LEAD_MAX = 5.0
"""Nats; more is no surer."""
CHANCE_MIN = 0.06
"""The least chance of a node, however little it costs."""
PRICE_MAX = 0.3
"""Above it nothing is drafted: a whole level that sure is rare, and looking for it takes time."""


def leads(scores: Sequence[float], width: int) -> list[float]:
    """Return how far candidates are ahead of their rivals, in nats; `scores` are best first.

    The rival of one that would survive is the first that would not, and the other way round.
    """
    last = scores[min(width, len(scores)) - 1]
    first_out = scores[width] if len(scores) > width else -float("inf")
    return [
        min(score - (first_out if rank < width else last), LEAD_MAX)
        for rank, score in enumerate(scores)
    ]


def chance(lead: float, sureness: int) -> float:
    """Return how likely a candidate with this lead over its rivals is to survive."""
    edge, slope, _ = SURENESS[sureness]
    return 1.0 / (1.0 + exp(-slope * (lead - edge)))


@dataclass(frozen=True, slots=True)
class NodeCost:
    """The cost of a node to a round, as the chance to survive that it must have."""

    width: int
    load: int
    """Tokens of the round before the draft trees: a search's are at least as many as its branches,
    if not in this round, then in the next."""
    rows: int
    costs: Sequence[float]
    """The cost of a round in ms, by its tokens."""
    is_read_again: bool = False
    """Whether nodes that survive are computed once more in the next round."""

    def price(self, nodes: int) -> float:
        """Return width * T'(nodes) / (share * T), at least `CHANCE_MIN`; 1 beyond what is measured.

        The slope is taken over many tokens, since the curve is learnt from noisy steps.
        """
        start = self.load + nodes
        more = min(2 * self.rows, len(self.costs) - 1 - start)
        if more < 1:
            return 1.0
        slope = (self.costs[start + more] - self.costs[start]) / more
        share = self.rows / self.load * self.costs[self.load]
        price = max(CHANCE_MIN, self.width * slope / share)
        return price / max(price, 1.0 - price) if self.is_read_again else price
