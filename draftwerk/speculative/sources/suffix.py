"""Suffix decoding: all the places that match the latest tokens vote on what comes next.

SuffixDecoding (arXiv 2411.04975): children are expanded by how many of the matching places agree
on them, so that the places which disagree become a tree. Where they do, the noise that the target
will draw with has a voice too.
"""

from math import log
from typing import NamedTuple

from draftwerk.speculative.sources.acceptance import DEPTHS, kind
from draftwerk.speculative.sources.ngram_index import GAP, LEVELS, Match, SequenceText
from draftwerk.speculative.sources.sequence_noise import SequenceNoise
from draftwerk.speculative.sources.tree import DraftSource, DraftTree

VOTERS_MAX = 8
"""Places of one level that vote."""
VOTERS_BELOW = 4
"""Places that go on voting below the first token."""
AGREEMENTS = 4
"""Buckets for the share of voters that agree on a token."""


class SuffixSource(DraftSource):
    """The votes of the text's own past."""

    __slots__ = ("_noise", "_text")

    def __init__(self, number: int, text: SequenceText, noise: SequenceNoise) -> None:
        super().__init__(number)
        self._text = text
        self._noise = noise

    def propose(self, tree: DraftTree, depth_max: int) -> None:
        """Add what followed the longest matches, and below them the second longest."""
        ballot = Ballot(self._noise, self._text.length, self._text.tokens, self._number)
        grow(tree, ballot, self._text.matches(), depth_max)


class Ballot(NamedTuple):
    """The candidates that are voted on."""

    noise: SequenceNoise
    position: int
    """The position of the next token of the sequence that is drafted for."""
    tokens: list[int]
    """Where the voters stand; another text, maybe."""
    source: int


def grow(tree: DraftTree, ballot: Ballot, matches: list[Match], depth_max: int) -> None:
    """Add the votes of the two best levels of matches."""
    levels: dict[int, list[int]] = {}
    for position, level in matches:
        positions = levels.setdefault(level, [])
        if len(positions) < VOTERS_MAX:
            positions.append(position)
    for level in sorted(levels, reverse=True)[:2]:
        _vote(tree, ballot, levels[level], kind(ballot.source, level * AGREEMENTS), depth_max)


def _vote(
    tree: DraftTree, ballot: Ballot, positions: list[int], first: int, depth_max: int
) -> None:
    """Expand level by level; a lone voter copies.

    Kind `first + k * DEPTHS` is that of tokens on which about k quarters of the voters agree. With
    few voters even unanimity is a weak sign; hence the + 1.
    """
    tokens = ballot.tokens
    end = len(tokens)
    queue = [(-1, positions, depth_max)]
    for parent, voters, length_left in queue:
        if len(voters) == 1:
            copy = tokens[voters[0] : voters[0] + length_left]
            if GAP in copy:
                del copy[copy.index(GAP) :]
            tree.add_chain(parent, copy, first + AGREEMENTS // 2 * DEPTHS)
            continue
        ballots: dict[int, list[int]] = {}
        for position in voters:
            if position < end and (token := tokens[position]) != GAP:
                ballots.setdefault(token, []).append(position + 1)
        favourite = _favourite(ballot, ballots, depth_max - length_left)
        for token, agreeing in ballots.items():
            agreement = AGREEMENTS * len(agreeing) // (len(voters) + 1)
            if favourite is not None:
                agreement = max(agreement, 1) if token == favourite else 0
            node = tree.add(parent, token, first + agreement * DEPTHS)
            if node >= 0 and length_left > 1:
                queue.append((node, agreeing[:VOTERS_BELOW], length_left - 1))


def _favourite(ballot: Ballot, ballots: dict[int, list[int]], depth: int) -> int | None:
    """Return which of several tokens the votes and the noise favour; None without noise."""
    if len(ballots) < 2 or not ballot.noise.sampled:
        return None
    noise = ballot.noise.of_tokens(ballot.position + depth, list(ballots))
    scores = {
        token: log(len(agreeing)) + extra
        for (token, agreeing), extra in zip(ballots.items(), noise, strict=True)
    }
    return max(scores, key=scores.__getitem__)


assert len(LEVELS) * AGREEMENTS <= 32, "more kinds of guess than buckets"
