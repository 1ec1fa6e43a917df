"""Token recycling (arXiv 2408.08696): what the target last thought could follow a token.

Every verified node brings the target's best successors for nothing. They are kept by token, and a
fixed breadth-first tree over them is a draft that needs no earlier occurrence of anything.
"""

from speculative.occurrences import Text
from speculative.survival import DEPTHS, RECYCLE, kind
from speculative.tree import Tree

RANKS = 8
"""Successors kept for a token."""
CHILDREN = (RANKS, 2, 1)
"""Children of a node, by the sum of ranks on its path, the root's own apart; none beyond."""
TOKENS_MAX = 16_384
"""Tokens with successors, at about 450 bytes; the longest unchanged are forgotten first."""
SURE = 0.8
"""Where another source is this sure of the next token, recycling only costs time."""


class Successors:
    """By token, the target's best next tokens, best first."""

    __slots__ = ("_by_token",)

    def __init__(self) -> None:
        self._by_token: dict[int, tuple[int, ...]] = {}

    def learn(self, found: tuple[tuple[int, ...], ...]) -> None:
        """Take in (token, its best successors …) for every node that the target looked at."""
        for token, *best in found:
            self._by_token.pop(token, None)  # so that it becomes the newest
            self._by_token[token] = tuple(best[:RANKS])
        while len(self._by_token) > TOKENS_MAX:
            del self._by_token[next(iter(self._by_token))]

    def of(self, token: int) -> tuple[int, ...]:
        """Return the successors of a token, best first, or nothing."""
        return self._by_token.get(token, ())

    def check(self) -> None:
        """Assert the bounds."""
        assert len(self._by_token) <= TOKENS_MAX
        assert all(len(best) <= RANKS for best in self._by_token.values())


class RecycleSource:
    """A tree over the tenant's successors, below the sequence's last token."""

    __slots__ = ("_successors", "_text")

    def __init__(self, text: Text, successors: Successors) -> None:
        self._text = text
        self._successors = successors

    def learn(self, news: tuple[int, ...]) -> None:
        """Nothing: the successors come with the rows."""

    def propose(self, tree: Tree, reach: int) -> None:
        if max(tree.scores[:1], default=0.0) >= SURE:
            return
        successors = self._successors
        queue = [(-1, self._text.tokens[-1], 0, 0)]
        for parent, last, ranks, depth in queue:
            first = kind(RECYCLE, RANKS * min(ranks, 3))
            width = CHILDREN[0] if depth == 0 else CHILDREN[ranks + 1]
            for rank, token in enumerate(successors.of(last)[:width]):
                node = tree.add(parent, token, first + rank * DEPTHS)
                if node >= 0 and depth + 1 < reach and ranks + rank + 1 < len(CHILDREN):
                    queue.append((node, token, ranks + rank, depth + 1))
