"""Token recycling (arXiv 2408.08696): the target's latest top-k after each token.

The logits of each verified node give the target's top-k next tokens at no extra cost. They are kept
by token, and a tree over them is a draft that needs no earlier occurrence of anything. Successors
are ranked with the noise that the target will draw with; the score says how good a guess is.
"""

from collections.abc import Iterable

from draftwerk.speculative.row_parts.feedback import TokenTopK
from draftwerk.speculative.sources.acceptance import DEPTHS
from draftwerk.speculative.sources.ngram_index import SequenceText
from draftwerk.speculative.sources.ranking import Ranking
from draftwerk.speculative.sources.sequence_noise import SequenceNoise
from draftwerk.speculative.sources.tree import DraftSource, DraftTree

RANKS = 16
"""Successors kept for a token: with noise the ninth is drafted now and then."""
WIDTHS = (8, 3, 2)
"""Most children of a node, by depth; none beyond."""
EXPANDED_MAX = 4
"""Nodes that get children, the root included: each ranks all its successors."""
EXPANDED_MIN = 0.08
"""A path less likely than this gets no children."""
TOKENS_MAX = 16_384
"""Tokens with successors, at about 700 bytes; the longest unchanged are forgotten first."""
SURE = 0.8
"""Where another source is this sure of the next token, recycling only costs time."""


class Successors:
    """By token, the target's latest top-k after it."""

    __slots__ = ("_by_token",)

    def __init__(self) -> None:
        self._by_token: dict[int, TokenTopK] = {}

    def learn(self, topk: Iterable[TokenTopK]) -> None:
        """Record the target's top-k at every node that it computed."""
        for entry in topk:
            self._by_token.pop(entry.token, None)  # so that it becomes the newest
            self._by_token[entry.token] = entry
        while len(self._by_token) > TOKENS_MAX:
            del self._by_token[next(iter(self._by_token))]

    def of(self, token: int) -> TokenTopK | None:
        """Return what could follow a token, if that is known."""
        return self._by_token.get(token)

    def check(self) -> None:
        """Assert the bounds."""
        assert len(self._by_token) <= TOKENS_MAX
        for token, entry in self._by_token.items():
            assert token == entry.token
            assert len(entry.best) == len(entry.losses)


class RecycleSource(DraftSource):
    """A tree over the name space's successors, below the sequence's last token."""

    __slots__ = ("_ranking", "_successors", "_text")

    def __init__(
        self, number: int, text: SequenceText, successors: Successors, noise: SequenceNoise
    ) -> None:
        super().__init__(number)
        self._text = text
        self._successors = successors
        self._ranking = Ranking(number, noise)

    def propose(self, tree: DraftTree, depth_max: int) -> None:
        if max(tree.scores[:1], default=0.0) >= SURE:
            return
        position = self._text.length
        queue = [(-1, self._text.tokens[-1], 1.0, 0)]
        for parent, last, path, depth in queue:
            entry = self._successors.of(last)
            if entry is None:
                continue
            best, losses = entry.best[:RANKS], entry.losses[:RANKS]
            children = self._ranking.add(
                tree, parent, position + depth, best, losses, WIDTHS[depth]
            )
            for node, token in children:
                chance = path * tree.scores[node]
                if (
                    depth + 1 < min(depth_max, len(WIDTHS))
                    and chance >= EXPANDED_MIN
                    and len(queue) < EXPANDED_MAX
                ):
                    queue.append((node, token, chance, depth + 1))


assert len(WIDTHS) < DEPTHS
