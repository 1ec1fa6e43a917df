"""Candidates for one place, ranked with the noise that the target will draw with, as guesses."""

from bisect import bisect_right
from collections.abc import Sequence

from draftwerk.speculative.sources.acceptance import kind
from draftwerk.speculative.sources.sequence_noise import SequenceNoise
from draftwerk.speculative.sources.tree import DraftTree

BANDS = 8
GREEDY_BANDS = (-4.0, -3.0, -2.0, -1.0, -0.5, -0.2)
SAMPLED_BANDS = (-2.0, -1.0, 0.0, 1.0, 2.0, 3.0)
"""Where the bands of scores begin; the best score of all tokens is 0.6 on average."""


class Ranking:
    """How one source ranks for one sequence: the best apart from the others, by bands of scores."""

    __slots__ = ("_bands", "_first", "_noise", "_source")

    def __init__(self, source: int, noise: SequenceNoise) -> None:
        self._source = source
        self._noise = noise
        self._bands = SAMPLED_BANDS if noise.sampled else GREEDY_BANDS
        self._first = 2 * BANDS if noise.sampled else 0

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
        added: list[tuple[int, int]] = []
        ranked = self._noise.ranked(position, tokens, losses)
        for rank, (score, token) in enumerate(ranked[:width]):
            bucket = self._first + min(rank, 1) * BANDS + bisect_right(self._bands, score)
            node = tree.add(parent, token, kind(self._source, bucket))
            if node >= 0:
                added.append((node, token))
        return added


assert len(SAMPLED_BANDS) < BANDS > len(GREEDY_BANDS)
