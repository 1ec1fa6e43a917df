"""The KV cache's tensors: made once, then only written, copied and compacted."""

from collections.abc import Sequence
from math import prod
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from draftwerk.model.batch.batch import Pages
from draftwerk.model.checkpoint.config import KeyHeads, LayerGroup, ModelConfig
from draftwerk.model.reference.transfer import to_device


class CachedHeads(Protocol):
    """The heads that are cached of each token, as a config says it."""

    @property
    def head_size(self) -> int: ...
    def planes_in(self, group: LayerGroup, /) -> int: ...
    def widest_keys(self, group: LayerGroup, /) -> KeyHeads: ...


def allocate(
    config: ModelConfig,
    block_count: int,
    block_size: int,
    dtype: torch.dtype,
    device: torch.device,
    width: int = 0,
    state_slots: int = 0,
) -> Pages:
    """Return zeroed pages; on a CPU the memory is taken only as blocks are first written.

    `width` is what a head takes, in elements, where that is not its size.
    """
    shape = page_shape(config, block_count, block_size, width)
    if device.type == "cpu":
        pages = private_pages(shape, dtype)
    else:
        keys, values = (torch.zeros(shape, dtype=dtype, device=device) for _ in range(2))
        pages = Pages(keys, values)
    if config.state_size and state_slots:
        pages.states = torch.zeros(state_slots, config.state_size, device=device)
    return pages


def page_shape(
    config: CachedHeads,
    block_count: int,
    block_size: int,
    width: int = 0,
    group: LayerGroup = "all",
) -> tuple[int, ...]:
    """Return the shape of a group's keys: [planes, blocks, block_size, heads, width].

    `width` is what a head of the model's size takes. A layer with fewer or narrower heads than its
    group's widest has them at the front of what a slot takes.
    """
    heads, size = config.widest_keys(group)
    more = width - config.head_size if width else 0
    return config.planes_in(group), block_count, block_size, heads, size + more


def heads_in(plane: Tensor, heads: KeyHeads) -> Tensor:
    """Return a layer's keys [blocks, block_size, heads, size] in a plane of its group's pages."""
    if plane.shape[2:] == heads:
        return plane
    return plane.flatten(2)[..., : heads.heads * heads.size].unflatten(2, heads)


def private_pages(shape: tuple[int, ...], dtype: torch.dtype) -> Pages:
    """Return zeroed pages in this process's own memory, taken as blocks are first written."""
    return Pages(_untouched(shape, dtype), _untouched(shape, dtype))


def _untouched(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Return zeros that the kernel has yet to provide; torch would write every one of them."""
    return tensor_over(np.zeros(prod(shape) * dtype.itemsize, np.uint8), shape, dtype)


def tensor_over(data: NDArray[np.uint8], shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Return bytes as a tensor; of no planes, where all layers have windows, an empty one."""
    if not len(data):
        return torch.empty(shape, dtype=dtype)
    *outer, last = shape
    return torch.from_numpy(data.reshape(*outer, last * dtype.itemsize)).view(dtype)


def copy_blocks(pages: Pages, copies: Sequence[tuple[int, int]]) -> None:
    """Copy whole blocks, all layers, as if at once."""
    if pages.window is not None:
        copies, further = split_at(copies, pages.keys.shape[1])
        copy_blocks(pages.window, further)
    if not copies:
        return
    sources, targets = to_device(torch.tensor(copies), pages.keys.device).T
    for tensor in _parts(pages):
        tensor[:, targets] = tensor[:, sources]


def move_slots(pages: Pages, moves: Sequence[tuple[int, int]]) -> None:
    """Copy (from, to) slots of the flattened (block, offset) axis, all layers, as if at once."""
    if pages.window is not None:
        moves, further = split_at(moves, pages.keys.shape[1] * pages.block_size)
        move_slots(pages.window, further)
    if not moves:
        return
    sources, targets = to_device(torch.tensor(moves), pages.keys.device).T
    for tensor in _parts(pages):
        flat = tensor.flatten(1, 2)
        flat[:, targets] = flat[:, sources]


def split_at(
    pairs: Sequence[tuple[int, int]], first: int
) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Return pairs below `first`, and the others, of layers with windows, counted from there."""
    return (
        [pair for pair in pairs if pair[0] < first],
        [(source - first, target - first) for source, target in pairs if source >= first],
    )


def _parts(pages: Pages) -> tuple[Tensor, ...]:
    """Return keys and values to be copied: as plain bytes where a number is one byte.

    Not every device gathers and scatters e4m3.
    """
    both = pages.keys, pages.values
    return tuple(part.view(torch.uint8) if part.itemsize == 1 else part for part in both)
