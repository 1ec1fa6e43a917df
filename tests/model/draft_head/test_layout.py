"""The numbers in which devices write draft trees: there and back."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from draftwerk.model.draft_head.layout import BEST_TOKENS, NO_NODE, PARENT, TOKEN, TreeLayout
from draftwerk.speculative.row_parts.feedback import HeadNode

LAYOUT = TreeLayout(levels=3, expanded=2, best=2)
TREES = [
    (
        HeadNode(-1, 5, (7, 8), (1, 90)),
        HeadNode(0, 7, (1, 2), (3, 4)),
        HeadNode(0, 8, (2,), (6,)),
        HeadNode(2, 2, (), ()),
    ),
    (HeadNode(-1, 9, (4, 3), (0, 4095)),),
]


def pack(trees: Sequence[Sequence[HeadNode]]) -> NDArray[np.int32]:
    """Return [rows, slots, fields] numbers of trees, each node in the slot of its index."""
    numbers = np.full((len(trees), LAYOUT.slots, LAYOUT.fields), NO_NODE, np.int32)
    for row, tree in zip(numbers, trees, strict=True):
        for slot, node in zip(row, tree, strict=False):
            count = len(node.best)
            slot[PARENT], slot[TOKEN] = node.parent, node.token
            slot[BEST_TOKENS : BEST_TOKENS + count] = node.best
            slot[LAYOUT.losses : LAYOUT.losses + count] = node.losses
    return numbers


def test_what_is_packed_is_unpacked():
    assert LAYOUT.unpack(pack(TREES).flatten().tolist()) == TREES
    assert LAYOUT.unpack([]) == []


def test_numbers_are_where_kernels_write_them():
    assert (LAYOUT.slots, LAYOUT.fields, LAYOUT.losses) == (5, 6, 4)
    first, second = pack(TREES).tolist()
    assert first[0] == [-1, 5, 7, 8, 1, 90]
    assert first[2] == [0, 8, 2, NO_NODE, 6, NO_NODE]
    assert [slot[PARENT] for slot in second] == [-1] + 4 * [NO_NODE]


def test_parents_are_slots_and_slots_may_be_left_out():
    numbers = pack(TREES)[:1]
    numbers[0, 4] = numbers[0, 3]
    numbers[0, 4, PARENT] = 2
    numbers[0, 3, PARENT] = numbers[0, 1, PARENT] = NO_NODE
    numbers[0, 3, TOKEN : BEST_TOKENS + 1] = 77
    (tree,) = LAYOUT.unpack(numbers.flatten().tolist())
    assert [(node.parent, node.token) for node in tree] == [(-1, 5), (0, 8), (1, 2)]
