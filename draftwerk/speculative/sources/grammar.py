"""Jump-forward tokens as a draft source: those that the grammar leaves no choice about."""

from draftwerk.speculative.rounds import Row
from draftwerk.speculative.sources.acceptance import kind
from draftwerk.speculative.sources.tree import DraftSource, DraftTree


class GrammarSource(DraftSource):
    """One chain, found by the target's device, which alone follows the grammar."""

    __slots__ = ("jump_forward",)

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.jump_forward: tuple[int, ...] = ()
        """After the newest known token."""

    def read(self, row: Row) -> None:
        self.jump_forward = row.feedback.jump_forward

    def propose(self, tree: DraftTree, depth_max: int) -> None:
        """Add the jump-forward tokens, even beyond `depth_max`: it costs nothing to guess."""
        tree.add_chain(-1, self.jump_forward, kind(self._number, 0))
