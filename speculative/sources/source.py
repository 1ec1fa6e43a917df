"""What a draft source is: one sequence's view of one place that guesses come from."""

from typing import Protocol

from draftwerk.speculative.sources.tree import Tree


class Source(Protocol):
    """Guesses one sequence's next tokens; which sources there are, `survival.NAMES` says."""

    def learn(self, news: tuple[int, ...]) -> None:
        """Take in committed tokens; the sequence's `Text` has them already."""
        ...

    def propose(self, tree: Tree, reach: int) -> None:
        """Add guesses to the tree, in paths of at most `reach` tokens."""
        ...
