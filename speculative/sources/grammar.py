"""What a grammar forces: tokens that the target must say next, whatever it thinks."""

from draftwerk.speculative.sources.acceptance import GRAMMAR, kind
from draftwerk.speculative.sources.tree import Tree


class GrammarSource:
    """One chain, found by the target's device, which alone follows the grammar."""

    __slots__ = ("forced",)

    def __init__(self) -> None:
        self.forced: tuple[int, ...] = ()
        """After the newest known token."""

    def learn(self, news: tuple[int, ...]) -> None:
        """Forget what was forced before them."""
        self.forced = ()

    def propose(self, tree: Tree, reach: int) -> None:
        """Add what is forced, even beyond `reach`: it costs nothing to guess."""
        tree.add_chain(-1, self.forced, kind(GRAMMAR, 0))
