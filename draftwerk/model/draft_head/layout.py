"""How a device writes a draft head's trees: int32 numbers that Python, C++ and Triton agree on.

    trees   [rows, slots, fields]
    slot    parent | token | best tokens, best first | their losses
            0        1       2 ..                      2 + best ..

A level's nodes have the slots after those of the level before: the root has slot 0, then come
`expanded` slots for each further level. A parent is named by its slot, the root's is -1. A slot
without a node has NO_NODE for its parent, and anything elsewhere; where fewer tokens are known
than are named, the others are negative.

Written by `native/source/draft_head/draft_tree.cpp` and `gpu/draft_tree.py`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from draftwerk.speculative.row_parts.feedback import HeadNode

NO_NODE = -2
PARENT, TOKEN, BEST_TOKENS = range(3)
"""Offsets in a slot; `TreeLayout.losses` is the fourth."""


@dataclass(frozen=True, slots=True)
class TreeLayout:
    """The layout of trees of one shape."""

    levels: int
    expanded: int
    """Nodes of a row at each level below the root."""
    best: int
    """Tokens that a node names."""

    @property
    def slots(self) -> int:
        """Slots of a tree."""
        return 1 + self.expanded * (self.levels - 1)

    @property
    def losses(self) -> int:
        """Offset of the losses in a slot."""
        return BEST_TOKENS + self.best

    @property
    def fields(self) -> int:
        """Numbers of a slot."""
        return BEST_TOKENS + 2 * self.best

    def unpack(self, numbers: Sequence[int]) -> list[tuple[HeadNode, ...]]:
        """Return the trees of rows * slots * fields numbers, one after the other."""
        size = self.slots * self.fields
        return [self._tree(numbers[at : at + size]) for at in range(0, len(numbers), size)]

    def _tree(self, numbers: Sequence[int]) -> tuple[HeadNode, ...]:
        """Return the nodes in use; parents are named by slots, and then by index among these."""
        indices, found, fields, losses = {-1: -1}, list[HeadNode](), self.fields, self.losses
        for slot, parent in enumerate(numbers[PARENT::fields]):
            if parent != NO_NODE:
                node = numbers[slot * fields : (slot + 1) * fields]
                best, lost = tuple(node[BEST_TOKENS:losses]), tuple(node[losses:])
                if best[-1] < 0:  # fewer are known
                    best = tuple([token for token in best if token >= 0])
                    lost = lost[: len(best)]
                indices[slot] = len(found)
                found.append(HeadNode(indices[parent], node[TOKEN], best, lost))
        return tuple(found)
