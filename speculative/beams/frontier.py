"""Where a beam search goes on after a round, as far as its rows alone can tell."""

from collections.abc import Iterable, Sequence
from heapq import nlargest
from operator import itemgetter
from typing import NamedTuple

from draftwerk.speculative.beams.decisions import Offer
from draftwerk.speculative.protocol.rounds import Draft, children_of


class Reached(NamedTuple):
    """What a round found out about one branch."""

    score: float
    draft: Draft
    offers: Sequence[Sequence[Offer]]
    """After its last known token and after every node."""


class Outpost(NamedTuple):
    """A survivor of a step that no row has computed."""

    row: int
    node: int
    """The node that it follows; -1 is the last known token."""
    token: int


def frontier(rows: Sequence[Reached], width: int, stops: Iterable[int] = ()) -> list[Outpost]:
    """Return the survivors after which the target has not spoken, of the first step that has some.

    What has ended before, and who wins where nothing that is known decides, is left to the search:
    this is to guess with.
    """
    stopping = frozenset(stops)
    children = [children_of(row.draft) for row in rows]
    heads = [(row.score, number, -1) for number, row in enumerate(rows)]
    while heads:
        candidates = [
            (score + logprob, Outpost(number, node, token))
            for score, number, node in heads
            for token, logprob in rows[number].offers[node + 1]
            if token not in stopping
        ]
        heads = list[tuple[float, int, int]]()
        missing: list[Outpost] = []
        for score, outpost in nlargest(width, candidates, key=itemgetter(0)):
            child = children[outpost.row].get((outpost.node, outpost.token))
            if child is None:
                missing.append(outpost)
            else:
                heads.append((score, outpost.row, child))
        if missing:
            return missing
    return []
