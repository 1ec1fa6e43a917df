"""Suffix decoding: all the places that match the latest tokens vote on what comes next.

SuffixDecoding (arXiv 2411.04975): children are expanded by how many of the matching places agree
on them, so that the places which disagree become a tree.
"""

from speculative.occurrences import GAP, LEVELS, Match, Text
from speculative.survival import DEPTHS, SUFFIX, kind
from speculative.tree import Tree

VOTERS_MAX = 8
"""Places of one level that vote."""
VOTERS_BELOW = 4
"""Places that go on voting below the first token."""
AGREEMENTS = 4
"""Buckets for the share of voters that agree on a token."""


class SuffixSource:
    """The votes of the text's own past."""

    __slots__ = ("_text",)

    def __init__(self, text: Text) -> None:
        self._text = text

    def learn(self, news: tuple[int, ...]) -> None:
        """Nothing: the text is the memory."""

    def propose(self, tree: Tree, reach: int) -> None:
        """Add what followed the longest matches, and below them the second longest."""
        grow(tree, self._text.tokens, self._text.matches(), SUFFIX, reach)


def grow(tree: Tree, tokens: list[int], matches: list[Match], source: int, reach: int) -> None:
    """Add the votes of the two best levels of matches."""
    levels: dict[int, list[int]] = {}
    for place, level in matches:
        places = levels.setdefault(level, [])
        if len(places) < VOTERS_MAX:
            places.append(place)
    for level in sorted(levels, reverse=True)[:2]:
        _vote(tree, tokens, levels[level], kind(source, level * AGREEMENTS), reach)


def _vote(tree: Tree, tokens: list[int], places: list[int], first: int, reach: int) -> None:
    """Expand level by level; a lone voter copies.

    Kind `first + k * DEPTHS` is that of tokens on which about k quarters of the voters agree. With
    few voters even unanimity is a weak sign, which the + 1 says.
    """
    end = len(tokens)
    queue = [(-1, places, reach)]
    for parent, voters, left in queue:
        if len(voters) == 1:
            copy = tokens[voters[0] : voters[0] + left]
            if GAP in copy:
                del copy[copy.index(GAP) :]
            tree.add_chain(parent, copy, first + AGREEMENTS // 2 * DEPTHS)
            continue
        ballots: dict[int, list[int]] = {}
        for place in voters:
            if place < end and (token := tokens[place]) != GAP:
                ballots.setdefault(token, []).append(place + 1)
        for token, agreeing in ballots.items():
            agreement = AGREEMENTS * len(agreeing) // (len(voters) + 1)
            node = tree.add(parent, token, first + agreement * DEPTHS)
            if node >= 0 and left > 1:
                queue.append((node, agreeing[:VOTERS_BELOW], left - 1))


assert len(LEVELS) * AGREEMENTS <= 32, "more kinds of guess than buckets"
