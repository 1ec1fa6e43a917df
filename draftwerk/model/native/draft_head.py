"""A draft head on the CPU's kernels, matrices in four bits: the fast twin of `TorchStep`."""

import weakref
from collections.abc import Sequence
from ctypes import Array, c_int32

import torch
from torch import Tensor

from draftwerk.model.checkpoint.weights import WeightMatrix
from draftwerk.model.draft_head.head import DraftHead, Steps
from draftwerk.model.draft_head.tree import (
    BEST,
    CHANCE_MIN,
    EXPANDED,
    LAYOUT,
    LEVELS,
    LOOKED,
    OPEN_MAX,
    Start,
)
from draftwerk.model.native.calls.structs import DraftHeadRow, TreeShape, TreeStart
from draftwerk.model.native.forward import NativeForward
from draftwerk.model.native.gumbel import SEED_MASK
from draftwerk.model.native.pool import Pool
from draftwerk.model.native.stored import halved, parts_of, quantised, rows_of
from draftwerk.model.reference.sampler import LOSS_MAX
from draftwerk.speculative.row_parts.feedback import LOSS_NATS, HeadNode

KIND = "IQ4_NL"
"""Half of the bytes of Q8_0, which are most of what the head takes, for guesses as good."""
MATRICES = ("gate_up", "down")
VECTORS = ("keep", "state_norm", "token_norm", "norm")
"""In the order of `DraftHead` in source/draft_head/draft_head.h; the target's head comes last."""
LOOKS = LOOKED, BEST, EXPANDED, OPEN_MAX, CHANCE_MIN, LOSS_NATS, LOSS_MAX
TREES = tuple(TreeShape(LEVELS, depth, *LOOKS) for depth in range(LEVELS + 1))
"""By how many levels of the layout are computed."""


class NativeStep:
    """A `HeadStep`; not for two threads at once.

    `embedding` [vocab, H] is read at every call; of a model that stores it in blocks, the model.
    """

    def __init__(
        self,
        head: DraftHead,
        embedding: Tensor | NativeForward,
        target_head: WeightMatrix,
        pool: Pool,
    ) -> None:
        self._pool = pool
        self._embedding = embedding
        is_tensor = isinstance(embedding, Tensor)
        self._vocab, self._hidden = embedding.shape if is_tensor else embedding.vocabulary
        self._size = len(head.vocabulary)
        vocabulary = head.vocabulary.int().contiguous()
        self._library = pool.library
        self.handle: int = self._library.draft_head_create(
            pool.handle,
            self._hidden,
            head.down.shape[1],
            vocabulary.data_ptr(),
            self._size,
            embedding.data_ptr() if is_tensor else None,
            is_tensor and embedding.dtype == torch.bfloat16,
        )
        weakref.finalize(self, self._library.draft_head_destroy, self.handle)
        if not is_tensor:
            self._library.draft_head_use_model(self.handle, embedding.handle)
        matrices = [getattr(head, name) for name in MATRICES]
        matrices.append(rows_of(target_head, head.vocabulary))
        for which, matrix in enumerate(matrices):
            parts = (quantised(matrix, KIND, pool),)
            parts = halved(parts) if which == 0 else parts
            self._library.draft_head_set_matrix(
                self.handle, which, parts_of(parts), len(parts), parts[0].shape[1]
            )
        for which, name in enumerate(VECTORS):
            values = getattr(head, name).float().contiguous()
            self._library.draft_head_set_vector(self.handle, which, values.data_ptr())

    def __call__(self, states: Tensor, tokens: list[int], count: int) -> Steps:
        """Return the states [n, H] after the tokens, and the `count` best that could follow."""
        if states.dtype != torch.float32 or not states.is_contiguous():
            raise ValueError("states must be contiguous float32")
        if not 0 <= min(tokens) <= max(tokens) < self._vocab:
            raise ValueError("a token is outside the vocabulary")
        count = min(count, self._size)
        rows = len(tokens)
        after = torch.empty(rows, self._hidden)
        best = torch.empty(rows, count, dtype=torch.int32)
        logprobs = torch.empty(rows, count, dtype=torch.float64)
        arguments = (DraftHeadRow * rows)()
        for row, (to, token) in enumerate(zip(arguments, tokens, strict=True)):
            to.state = states.data_ptr() + row * self._hidden * 4
            to.token = token
            to.next = after.data_ptr() + row * self._hidden * 4
            to.best = best.data_ptr() + row * count * 4
            to.logprobs = logprobs.data_ptr() + row * count * 8
        self._library.draft_head_run(self.handle, arguments, rows, count)
        return Steps(after, best.tolist(), logprobs.tolist())

    def propose(self, rows: Sequence[Start], budget: int) -> list[tuple[HeadNode, ...]]:
        """Return each row's draft tree, parents first: `build_trees` of tree.py in one call."""
        if any(not 0 <= one.token < self._vocab for one in rows):
            raise ValueError("a token is outside the vocabulary")
        return LAYOUT.unpack(self.nodes(arguments_of(rows), budget)[:])

    def nodes(self, starts: Array[TreeStart], budget: int = LEVELS) -> Array[c_int32]:
        """Return the nodes of each row's tree one after the other, as in `LAYOUT`."""
        shape = TREES[min(budget, LEVELS)]
        found = (c_int32 * (len(starts) * LAYOUT.slots * LAYOUT.fields))()
        self._library.draft_head_build_trees(self.handle, starts, len(starts), shape, found)
        return found


def arguments_of(starts: Sequence[Start]) -> Array[TreeStart]:
    """Return what the kernels read of the rows; their states must live on meanwhile."""
    arguments = (TreeStart * len(starts))()
    for to, one in zip(arguments, starts, strict=True):
        states, (count, hidden) = one.states, one.states.shape
        if states.dtype != torch.float32 or not states.is_contiguous() or not one.row < count:
            raise ValueError("states must be contiguous float32")
        to.state = states.data_ptr() + 4 * hidden * one.row
        to.token, to.position = one.token, one.position
        to.seed, to.branch = one.noise.seed & SEED_MASK, one.noise.branch
        to.sampled, to.scale = one.noise.sampled, one.noise.scale
    return arguments
