"""Unexpanded survivors: where a beam search continues after a round, as far as its rows show."""

from collections.abc import Iterable, Sequence
from heapq import nlargest
from operator import itemgetter
from typing import NamedTuple

from draftwerk.speculative.options.beams.decisions import Candidate
from draftwerk.speculative.rounds import Draft


class VerifiedBranch(NamedTuple):
    """The results of a round for one branch."""

    score: float
    draft: Draft
    candidates: Sequence[Sequence[Candidate]]
    """After its last known token and after every node."""


class UnexpandedSurvivor(NamedTuple):
    """A survivor of a step that no row has computed."""

    row: int
    node: int
    """The node that it follows; -1 is the last known token."""
    token: int


def unexpanded_survivors(
    rows: Sequence[VerifiedBranch], width: int, stops: Iterable[int] = ()
) -> list[UnexpandedSurvivor]:
    """Return the surviving beams whose last token was not computed, at the first step that has any.

    Ignores finished hypotheses and ties: the result is used only to decide what to draft.
    """
    stopping = frozenset(stops)
    children = [row.draft.children() for row in rows]
    tips = [(row.score, number, -1) for number, row in enumerate(rows)]
    while tips:
        candidates = [
            (score + logprob, UnexpandedSurvivor(number, node, token))
            for score, number, node in tips
            for token, logprob in rows[number].candidates[node + 1]
            if token not in stopping
        ]
        tips = list[tuple[float, int, int]]()
        missing: list[UnexpandedSurvivor] = []
        for score, survivor in nlargest(width, candidates, key=itemgetter(0)):
            child = children[survivor.row].get((survivor.node, survivor.token))
            if child is None:
                missing.append(survivor)
            else:
                tips.append((score, survivor.row, child))
        if missing:
            return missing
    return []
