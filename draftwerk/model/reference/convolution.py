"""Short convolutions: each channel of a token is weighed with those of the few tokens before it.

What is weighed lies in the pages, as keys and values do, so it is moved, copied, shared and kept
with them. A convolution's planes are of a token as many numbers as keys and values take.
"""

import torch
from torch import Tensor

from draftwerk.model.batch.batch import Batch, Pages
from draftwerk.model.batch.e4m3 import read, write

NODES_MAX = 63
"""New tokens of a row with ancestors, at most."""


def conv_slots(batch: Batch, block_size: int, kernel_size: int) -> Tensor:
    """Return [T, kernel size]: the slots of the tokens that each token sees, its own last.

    Of a node of a tree they are its ancestors'. -1 stands before the beginning of the text.
    """
    counts = batch.row_starts.diff().long()
    rows = torch.repeat_interleave(counts)
    prefix = (batch.kv_lengths - counts)[rows]
    at = torch.arange(len(rows), device=rows.device) - batch.row_starts[rows]
    found = [batch.slots.long()]
    for _ in range(kernel_size - 1):
        at = _before(at, batch.ancestors)
        place = prefix + at
        blocks = batch.block_tables[rows, (place // block_size).clamp(min=0)].long()
        slots = blocks * block_size + place % block_size
        found.append(torch.where(place < 0, -1, slots))
    return torch.stack(found[::-1], dim=1)


class ConvSlots:
    """The slots of the latest batch, which are the same for every layer."""

    def __init__(self, kernel_size: int) -> None:
        self._kernel_size = kernel_size
        self._batch: Batch | None = None
        self._slots = torch.empty(0)

    def __call__(self, batch: Batch, block_size: int) -> Tensor:
        if batch is not self._batch:
            self._batch, self._slots = batch, conv_slots(batch, block_size, self._kernel_size)
        return self._slots


def _before(at: Tensor, ancestors: Tensor) -> Tensor:
    """Return which token of its row each one follows; those of the prefix are below 0."""
    below = at - 1
    is_masked = (ancestors != -1) & (at > 0)
    if not is_masked.any():
        return below
    last = torch.full_like(at, -1)
    for bit in range(NODES_MAX):
        last = torch.where((ancestors >> bit & 1 == 1) & (bit < at), bit, last)
    return torch.where(is_masked, last, below)


def store_inputs(inputs: Tensor, pages: Pages, planes: range, slots: Tensor) -> None:
    """Write inputs [T, channels] into a convolution's planes."""
    pieces = inputs.split(_piece(pages), dim=1)
    # The values of the last plane may hold none.
    for part, piece in zip(_parts(pages, planes), pieces, strict=False):
        write(part[:, : piece.shape[1]], slots, piece)


def convolved(
    weights: Tensor, pages: Pages, planes: range, slots: Tensor, dtype: torch.dtype
) -> Tensor:
    """Return the sums [T, channels] of what lies in `slots` [T, kernel size], times the weights
    [kernel size, channels]; a row more of them is added.

    Summed in float32, the own token last, and rounded once.
    """
    count, kernel_size = slots.shape
    size = weights.shape[1]
    sums = torch.zeros(count, size, device=weights.device)
    for tap in range(kernel_size):
        at = slots[:, tap]
        read_at = [read(part, at.clamp(min=0), torch.float32) for part in _parts(pages, planes)]
        seen = torch.where(at[:, None] < 0, 0.0, torch.cat(read_at, dim=1)[:, :size])
        sums = sums + seen * weights[tap].float()
    return (sums if len(weights) == kernel_size else sums + weights[kernel_size].float()).to(dtype)


def _piece(pages: Pages) -> int:
    """Return how many numbers of a slot one tensor of a plane holds."""
    return pages.keys.shape[3] * pages.keys.shape[4]


def _parts(pages: Pages, planes: range) -> list[Tensor]:
    """Return views [slots, numbers] of the planes' parts, in the order of channels."""
    return [
        part[plane].view(-1, _piece(pages))
        for plane in planes
        for part in (pages.keys, pages.values)
    ]
