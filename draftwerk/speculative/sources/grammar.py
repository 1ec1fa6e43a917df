"""Jump-forward tokens as a draft source: those that the grammar leaves no choice about."""

from draftwerk.speculative.sources.acceptance import GRAMMAR, kind
from draftwerk.speculative.sources.tree import DraftTree


class GrammarSource:
    """One chain, found by the target's device, which alone follows the grammar."""

    __slots__ = ("jump_forward",)

    def __init__(self) -> None:
        self.jump_forward: tuple[int, ...] = ()
        """After the newest known token."""

    def learn(self, new_token_ids: tuple[int, ...]) -> None:
        """Drop the tokens: they were computed before these."""
        self.jump_forward = ()

    def propose(self, tree: DraftTree, depth_max: int) -> None:
        """Add the jump-forward tokens, even beyond `depth_max`: it costs nothing to guess."""
        tree.add_chain(-1, self.jump_forward, kind(GRAMMAR, 0))
