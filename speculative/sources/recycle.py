"""Token recycling (arXiv 2408.08696): what the target last thought could follow a token.

Every verified node brings the target's best successors for nothing. They are kept by token, and a
tree over them is a draft that needs no earlier occurrence of anything. Successors are ranked with
the noise that the target will draw with, and the score says how good a guess is.
"""

from collections.abc import Iterable

from draftwerk.speculative.protocol.rounds import Outlook
from draftwerk.speculative.sources.acceptance import DEPTHS, RECYCLE
from draftwerk.speculative.sources.ngram_index import Text
from draftwerk.speculative.sources.ranking import Ranking
from draftwerk.speculative.sources.sequence_noise import Key
from draftwerk.speculative.sources.tree import Tree

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
    """By token, what the target thought could follow it."""

    __slots__ = ("_by_token",)

    def __init__(self) -> None:
        self._by_token: dict[int, Outlook] = {}

    def learn(self, outlooks: Iterable[Outlook]) -> None:
        """Take in what the target thought at every node that it looked at."""
        for outlook in outlooks:
            self._by_token.pop(outlook.token, None)  # so that it becomes the newest
            self._by_token[outlook.token] = outlook
        while len(self._by_token) > TOKENS_MAX:
            del self._by_token[next(iter(self._by_token))]

    def of(self, token: int) -> Outlook | None:
        """Return what could follow a token, if that is known."""
        return self._by_token.get(token)

    def check(self) -> None:
        """Assert the bounds."""
        assert len(self._by_token) <= TOKENS_MAX
        for token, outlook in self._by_token.items():
            assert token == outlook.token
            assert len(outlook.best) == len(outlook.losses)


class RecycleSource:
    """A tree over the name space's successors, below the sequence's last token."""

    __slots__ = ("_ranking", "_successors", "_text")

    def __init__(self, text: Text, successors: Successors, key: Key) -> None:
        self._text = text
        self._successors = successors
        self._ranking = Ranking(RECYCLE, key)

    def learn(self, news: tuple[int, ...]) -> None:
        """Nothing: the successors come with the rows."""

    def propose(self, tree: Tree, reach: int) -> None:
        if max(tree.scores[:1], default=0.0) >= SURE:
            return
        position = self._text.length
        queue = [(-1, self._text.tokens[-1], 1.0, 0)]
        for parent, last, path, depth in queue:
            outlook = self._successors.of(last)
            if outlook is None:
                continue
            best, losses = outlook.best[:RANKS], outlook.losses[:RANKS]
            children = self._ranking.add(
                tree, parent, position + depth, best, losses, WIDTHS[depth]
            )
            for node, token in children:
                chance = path * tree.scores[node]
                if (
                    depth + 1 < min(reach, len(WIDTHS))
                    and chance >= EXPANDED_MIN
                    and len(queue) < EXPANDED_MAX
                ):
                    queue.append((node, token, chance, depth + 1))


assert len(WIDTHS) < DEPTHS
