"""A batch's way to the device: one buffer here, its twin there, and one copy between them.

buffer   | ancestors | tokens | positions | slots | row_starts | kv_lengths | tables | outputs |
         each a view of it, aligned to 16 bytes, at the same place on both sides
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from draftwerk.model.batch.batch import Batch, Facts, facts_of

ALIGNMENT = 4
"""In int32: the 16 bytes from which a kernel may load at once."""


class BatchShape(NamedTuple):
    """The sizes of a batch's tensors."""

    rows: int
    tokens: int
    outputs: int
    width: int
    """The width of the block tables."""

    def sizes(self) -> tuple[int, ...]:
        """Return the elements of each part, in the buffer's order; ancestors are int64."""
        rows, tokens, outputs, width = self
        return 2 * tokens, tokens, tokens, tokens, rows + 1, rows, rows * width, outputs


def shape_of(batch: Batch) -> BatchShape:
    """Return the shape that just holds a batch."""
    rows, width = batch.block_tables.shape
    return BatchShape(rows, len(batch.tokens), len(batch.outputs), width)


class Inputs:
    """Both sides of the buffer, and a batch of views on each."""

    def __init__(self, shape: BatchShape, device: torch.device, facts: Facts | None = None) -> None:
        """`facts` are the bounds of whatever will be filled in; None takes each batch's own."""
        self.shape = shape
        self.facts = facts
        size = sum(map(_aligned, shape.sizes()))
        self.there = torch.zeros(size, dtype=torch.int32, device=device)
        pinned = device.type == "cuda"
        self.here = torch.zeros(size, dtype=torch.int32, pin_memory=pinned)
        self.host = _views(self.here, shape, facts)
        self.batch = _views(self.there, shape, facts)

    def fill(self, batch: Batch) -> None:
        """Write a host batch of just this shape."""
        for mine, theirs in zip(_tensors(self.host), _tensors(batch), strict=True):
            mine.copy_(theirs)
        if self.facts is None:
            self.batch.facts = facts_of(batch)

    def fill_padded(self, batch: Batch, length: int) -> None:
        """Write a host batch with every row `length` new tokens long, and rows that see nothing.

        A padding token has slot -1, so its K and V go nowhere; it comes after its row's own
        tokens, so none of them sees it.
        """
        host, count = self.host, len(batch.kv_lengths)
        starts = batch.row_starts.numpy()
        counts = np.diff(starts)
        first = np.arange(count) * length
        indices = torch.from_numpy(np.repeat(first - starts[:-1], counts) + np.arange(starts[-1]))
        for mine, theirs, padding in (
            (host.tokens, batch.tokens, 0),
            (host.positions, batch.positions, 0),
            (host.slots, batch.slots, -1),
            (host.ancestors, batch.ancestors, -1),
        ):
            mine.fill_(padding)
            mine[indices] = theirs
        host.kv_lengths.zero_()
        host.kv_lengths[:count] = batch.kv_lengths + torch.from_numpy(length - counts)
        host.outputs.zero_()
        host.outputs[: len(batch.outputs)] = indices[batch.outputs]
        host.row_starts.copy_(torch.arange(self.shape.rows + 1) * length)
        host.block_tables.zero_()
        host.block_tables[:count, : batch.block_tables.shape[1]] = batch.block_tables

    def send(self) -> Batch:
        """Queue the copy and return the batch on the device.

        What is here must not be written again before the copy is done; the results of the round,
        which the caller awaits before the next, are queued behind it.
        """
        self.there.copy_(self.here, non_blocking=True)
        return self.batch


def padding(lengths: Sequence[int], width: int, device: torch.device, facts: Facts) -> Inputs:
    """Return rows of so many tokens that are all padding: they write nothing and see nothing."""
    tokens = sum(lengths)
    inputs = Inputs(BatchShape(len(lengths), tokens, tokens, width), device, facts)
    inputs.host.slots.fill_(-1)
    inputs.host.ancestors.fill_(-1)
    inputs.host.row_starts.copy_(torch.tensor(list(accumulate(lengths, initial=0))))
    return inputs


def _views(buffer: Tensor, shape: BatchShape, facts: Facts | None) -> Batch:
    parts = _parts(buffer, shape)
    ancestors = next(parts).view(torch.int64)
    tokens, positions, slots, row_starts, kv_lengths, tables, outputs = parts
    tables = tables.view(shape.rows, shape.width)
    return Batch(
        tokens, positions, slots, row_starts, kv_lengths, tables, ancestors, outputs, facts
    )


def _parts(buffer: Tensor, shape: BatchShape) -> Iterator[Tensor]:
    begin = 0
    for size in shape.sizes():
        yield buffer[begin : begin + size]
        begin += _aligned(size)


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _tensors(batch: Batch) -> tuple[Tensor, ...]:
    return (
        batch.tokens,
        batch.positions,
        batch.slots,
        batch.row_starts,
        batch.kv_lengths,
        batch.block_tables,
        batch.ancestors,
        batch.outputs,
    )
