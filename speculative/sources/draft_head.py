"""A draft head's guesses: what it thinks could follow, and what could follow that."""

from draftwerk.speculative.protocol.rounds import Thought
from draftwerk.speculative.sources.acceptance import HEAD
from draftwerk.speculative.sources.ngram_index import Text
from draftwerk.speculative.sources.ranking import Ranking
from draftwerk.speculative.sources.sequence_noise import Key
from draftwerk.speculative.sources.tree import Tree

WIDTHS = (6, 4, 3, 2)
"""Most children of a node, by depth; none beyond."""


class HeadSource:
    """The tree of the newest thoughts, which came with the row."""

    __slots__ = ("_ranking", "_text", "thoughts")

    def __init__(self, text: Text, key: Key) -> None:
        self._text = text
        self._ranking = Ranking(HEAD, key)
        self.thoughts: tuple[Thought, ...] = ()

    def learn(self, news: tuple[int, ...]) -> None:
        """Forget what was thought before them."""
        self.thoughts = ()

    def propose(self, tree: Tree, reach: int) -> None:
        position = self._text.length
        places = [-1]  # of each thought in the tree, from the root on; -2 where it found no room
        for thought in self.thoughts:
            above, place = places[thought.parent + 1], -1
            if thought.parent >= 0:
                place = tree.child(above, thought.token) if above >= -1 else -1
                place = place if place >= 0 else -2
            places.append(place)
            depth = tree.depths[place] + 1 if place >= 0 else 0
            if place >= -1 and depth < min(reach, len(WIDTHS)):
                self._ranking.add(
                    tree, place, position + depth, thought.best, thought.losses, WIDTHS[depth]
                )
