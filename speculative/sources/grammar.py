"""What a grammar forces: tokens that the target must say next, whatever it thinks."""

from draftwerk.speculative.sources.acceptance import GRAMMAR, kind
from draftwerk.speculative.sources.tree import DraftTree


class GrammarSource:
    """One chain, found by the target's device, which alone follows the grammar."""

    __slots__ = ("jump_forward",)

    def __init__(self) -> None:
        self.jump_forward: tuple[int, ...] = ()
        """After the newest known token."""

    def learn(self, new_token_ids: tuple[int, ...]) -> None:
        """Forget what was forced before them."""
        self.jump_forward = ()

    def propose(self, tree: DraftTree, depth_max: int) -> None:
        """Add what is forced, even beyond `depth_max`: it costs nothing to guess."""
        tree.add_chain(-1, self.jump_forward, kind(GRAMMAR, 0))
