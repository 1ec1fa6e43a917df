"""What a draft source is: one sequence's view of one place that guesses come from."""

from typing import Protocol

from draftwerk.speculative.sources.tree import DraftTree


class DraftSource(Protocol):
    """Guesses one sequence's next tokens; `registry.SOURCES` lists the sources."""

    def learn(self, new_token_ids: tuple[int, ...]) -> None:
        """Take in committed tokens; the sequence's `SequenceText` has them already."""
        ...

    def propose(self, tree: DraftTree, depth_max: int) -> None:
        """Add guesses to the tree, in paths of at most `depth_max` tokens."""
        ...
