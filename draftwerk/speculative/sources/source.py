"""A draft source: one sequence's view of one place that guesses come from."""

from draftwerk.speculative.protocol.rounds import Row
from draftwerk.speculative.sources.tree import DraftTree


class DraftSource:
    """Guesses one sequence's next tokens; `registry.SOURCES` lists the sources."""

    __slots__ = ("_number",)

    def __init__(self, number: int) -> None:
        """Draft as this row of the table."""
        self._number = number

    def read(self, row: Row) -> None:
        """Take in what came with the sequence's newest row, after its committed tokens."""

    def propose(self, tree: DraftTree, depth_max: int) -> None:
        """Add guesses to the tree, in paths of at most `depth_max` tokens."""
        raise NotImplementedError
