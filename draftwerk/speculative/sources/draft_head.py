"""The draft head's tree (as in EAGLE, Medusa, Hydra) as a draft source."""

from collections.abc import Iterable

from draftwerk.speculative.rounds import Row
from draftwerk.speculative.row_parts.feedback import HeadNode
from draftwerk.speculative.sources.ngram_index import SequenceText
from draftwerk.speculative.sources.ranking import Ranking
from draftwerk.speculative.sources.sequence_noise import SequenceNoise
from draftwerk.speculative.sources.tree import DraftSource, DraftTree

WIDTHS = (6, 4, 3, 2)
"""Most children of a node, by depth; one beyond."""


class HeadSource(DraftSource):
    """Proposes the nodes of the draft head's newest tree, which came with the row."""

    __slots__ = ("_ranking", "_text", "head_tree", "levels")

    def __init__(self, number: int, text: SequenceText, noise: SequenceNoise) -> None:
        super().__init__(number)
        self._text = text
        self._ranking = Ranking(number, noise)
        self.head_tree: tuple[HeadNode, ...] = ()
        self.levels = 0
        """Levels of its newest tree."""

    def read(self, row: Row) -> None:
        self.head_tree = row.feedback.head_tree
        self.levels = max(node_levels(self.head_tree), default=0)

    def propose(self, tree: DraftTree, depth_max: int) -> None:
        position = self._text.length
        indices = [-1]  # of each head node in the draft tree; -2 where it found no room
        for node in self.head_tree:
            above, index = indices[node.parent + 1], -1
            if node.parent >= 0:
                index = tree.child(above, node.token) if above >= -1 else -1
                index = index if index >= 0 else -2
            indices.append(index)
            depth = tree.depths[index] + 1 if index >= 0 else 0
            if index >= -1 and depth < depth_max:
                width = WIDTHS[depth] if depth < len(WIDTHS) else 1
                # The device has ranked them with the same noise: others are not among the best.
                best, losses = node.best[:width], node.losses[:width]
                self._ranking.add(tree, index, position + depth, best, losses, width)


def node_levels(head_tree: Iterable[HeadNode]) -> list[int]:
    """Return the level of each node of a draft head's tree; that of the first is 1."""
    levels = list[int]()
    for node in head_tree:
        levels.append(levels[node.parent] + 1 if levels else 1)
    return levels
