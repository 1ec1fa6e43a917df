"""Candidates for one place, ranked with the noise that the target will draw with, as guesses."""

from bisect import bisect_right
from collections.abc import Sequence

from draftwerk.speculative.sources.acceptance import DEPTHS, kind
from draftwerk.speculative.sources.sequence_noise import SequenceNoise
from draftwerk.speculative.sources.tree import DraftTree

BANDS = 8
GREEDY_BANDS = (-4.0, -3.0, -2.0, -1.0, -0.5, -0.2)
SAMPLED_BANDS = (-2.0, -1.0, 0.0, 1.0, 2.0, 3.0)
"""Where the bands of scores begin; the best score of all tokens is 0.6 on average."""


class Ranking:
    """How one source ranks for one sequence: the best apart from the others, by bands of scores."""

    __slots__ = ("_bands", "_first", "_noise", "_others")

    def __init__(self, source: int, noise: SequenceNoise) -> None:
        self._noise = noise
        self._bands = SAMPLED_BANDS if noise.sampled else GREEDY_BANDS
        self._first = kind(source, 2 * BANDS if noise.sampled else 0)
        self._others = self._first + BANDS * DEPTHS

    def add(
        self,
        tree: DraftTree,
        parent: int,
        position: int,
        tokens: Sequence[int],
        losses: Sequence[int],
        width: int,
    ) -> list[tuple[int, int]]:
        """Add the `width` best of the tokens below a node; return (node, token)."""
        added, first, bands = list[tuple[int, int]](), self._first, self._bands
        for score, token in self._noise.ranked(position, tokens, losses)[:width]:
            node = tree.add(parent, token, first + DEPTHS * bisect_right(bands, score))
            first = self._others
            if node >= 0:
                added.append((node, token))
        return added


assert len(SAMPLED_BANDS) < BANDS > len(GREEDY_BANDS)
