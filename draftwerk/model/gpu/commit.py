"""What the target's answers decide, carried out where they are: no step waits for the host.

answers of all nodes --walk--> accepted paths --compact--> their keys and values, in place

The twin is `speculative.verify.TreeWalk`, which the host follows later over the same answers.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
import triton
import triton.language as tl
from numpy.typing import NDArray
from torch import Tensor

from draftwerk.model.batch.batch import MASKED_MAX, Pages
from draftwerk.model.gpu.kernels.launch import ceil_div, launch, power_of_two
from draftwerk.model.step.presampled import PackedTree

BLOCK = 1024
"""Words of four bytes that a program moves at once."""
LANES = MASKED_MAX + 1
"""Nodes of a tree that are looked at together; only a chain may have more."""


# Parts of one buffer lie anywhere: nothing may be compiled again for how they are aligned.
@triton.jit(do_not_specialize_on_alignment=["begins", "parents", "tokens"])
def walk_kernel(answers, begins, parents, tokens, paths, ends, LANES: tl.constexpr):
    """One tree, root first: `ends` is (nodes accepted, node where it ends, last token).

    Nodes are numbered within their tree, and the root, number 0, has parent -1.
    """
    tree = tl.program_id(0)
    begin = tl.load(begins + tree)
    size = tl.load(begins + tree + 1) - begin
    node = tl.arange(0, LANES)
    real = node < size
    parent = tl.load(parents + begin + node, mask=real, other=-1)
    token = tl.load(tokens + begin + node, mask=real, other=-1)
    count = size * 0
    at = size * 0
    said = tl.load(answers + begin)
    child = tl.max(tl.where((parent == at) & (token == said), node, -1), 0)
    while child >= 0:
        tl.store(paths + begin + count, child)
        count += 1
        at = child
        said = tl.load(answers + begin + at)
        child = tl.max(tl.where((parent == at) & (token == said), node, -1), 0)
    tl.store(ends + tree * 3, count)
    tl.store(ends + tree * 3 + 1, at)
    tl.store(ends + tree * 3 + 2, said)


@triton.jit(do_not_specialize_on_alignment=["begins", "slots"])
def compact_kernel(
    keys, values, begins, slots, paths, ends, layer_stride, slot_stride, BLOCK: tl.constexpr
):
    """Part of one layer: move a tree's accepted nodes to where a chain would have had them.

    In the order of the path, by the same thread for the same word: a node moves towards the root,
    so nothing is overwritten before it has moved.
    """
    tree = tl.program_id(0)
    layer = tl.program_id(1).to(tl.int64) * layer_stride
    word = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    mine = word < slot_stride
    begin = tl.load(begins + tree)
    for index in range(tl.load(ends + tree * 3)):
        node = tl.load(paths + begin + index)
        if node != index + 1:
            source = tl.load(slots + begin + node).to(tl.int64) * slot_stride + layer + word
            target = tl.load(slots + begin + index + 1).to(tl.int64) * slot_stride + layer + word
            key = tl.load(keys + source, mask=mine)
            value = tl.load(values + source, mask=mine)
            tl.store(keys + target, key, mask=mine)
            tl.store(values + target, value, mask=mine)


class PackedTrees(NamedTuple):
    """Trees on the device, their nodes one after another in the order of their questions: int32."""

    begins: Tensor
    """[trees + 1]"""
    firsts: Tensor
    """[trees]: the root's row of logits."""
    parents: Tensor
    """[nodes]"""
    tokens: Tensor
    slots: Tensor


def packed_trees(trees: Sequence[PackedTree]) -> NDArray[np.int32]:
    """Return the numbers of `unpacked_trees`; a root has no slot that anything could move to."""
    sizes = [len(tree.parents) + 1 for tree in trees]
    begins = np.concatenate([[0], np.cumsum(sizes)])
    parents = [above for tree in trees for above in (-1, *(node + 1 for node in tree.parents))]
    tokens = [token for tree in trees for token in (-1, *tree.tokens)]
    slots = [slot for tree in trees for slot in (0, *tree.slots)]
    firsts = [tree.first for tree in trees]
    return np.array([*begins, *firsts, *parents, *tokens, *slots], np.int32)


def unpacked_trees(numbers: Tensor, trees: int) -> PackedTrees:
    """Return the parts of what `packed_trees` made."""
    nodes = (len(numbers) - 2 * trees - 1) // 3
    return PackedTrees(*numbers.split([trees + 1, trees, nodes, nodes, nodes]))


def walk(answers: Tensor, packed: PackedTrees, largest: int) -> tuple[Tensor, Tensor]:
    """Queue the walk down trees of at most `largest` nodes; `answers` are int32, a node each.

    Returns the paths, int32 [nodes], and (nodes accepted, where it ends, last token) [trees, 3].
    """
    paths = torch.zeros_like(packed.parents)
    ends = paths.new_empty(len(packed.firsts), 3)
    launch(
        walk_kernel,
        (len(ends),),
        answers,
        packed.begins,
        packed.parents,
        packed.tokens,
        paths,
        ends,
        LANES=max(LANES, power_of_two(largest)),
        num_warps=1,
    )
    return paths, ends


def compact(pages: Pages, packed: PackedTrees, paths: Tensor, ends: Tensor) -> None:
    """Queue the moves that put every accepted path right behind its row's known tokens."""
    keys, values = (part.view(torch.int32) for part in (pages.keys, pages.values))
    layers, slot = keys.shape[0], keys.stride(2)
    launch(
        compact_kernel,
        (len(ends), layers, ceil_div(slot, BLOCK)),
        keys,
        values,
        packed.begins,
        packed.slots,
        paths,
        ends,
        keys.stride(0),
        slot,
        BLOCK=BLOCK,
    )
