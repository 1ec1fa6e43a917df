"""The early text as a draft source: what was decoded over reused segments for the same prompt."""

from draftwerk.speculative.sources.acceptance import EARLY, kind
from draftwerk.speculative.sources.tree import DraftTree


class EarlySource:
    """One chain, which comes with the row that it is for."""

    __slots__ = ("tokens",)

    def __init__(self) -> None:
        self.tokens: tuple[int, ...] = ()
        """After the newest known token."""

    def learn(self, new_token_ids: tuple[int, ...]) -> None:
        """Drop the tokens: the next row brings those that still fit."""
        self.tokens = ()

    def propose(self, tree: DraftTree, depth_max: int) -> None:
        """Add the tokens, even beyond `depth_max`: they were decoded, not guessed."""
        tree.add_chain(-1, self.tokens, kind(EARLY, 0))
