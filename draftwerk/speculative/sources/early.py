"""The early text as a draft source: what was decoded over reused segments for the same prompt."""

from draftwerk.speculative.protocol.rounds import Row
from draftwerk.speculative.sources.acceptance import kind
from draftwerk.speculative.sources.source import DraftSource
from draftwerk.speculative.sources.tree import DraftTree


class EarlySource(DraftSource):
    """One chain, which comes with the row that it is for."""

    __slots__ = ("tokens",)

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.tokens: tuple[int, ...] = ()
        """After the newest known token."""

    def read(self, row: Row) -> None:
        self.tokens = row.early

    def propose(self, tree: DraftTree, depth_max: int) -> None:
        """Add the tokens, even beyond `depth_max`: they were decoded, not guessed."""
        tree.add_chain(-1, self.tokens, kind(self._number, 0))
