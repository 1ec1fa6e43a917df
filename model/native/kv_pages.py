"""Block copies and slot moves over all layers: the fast twin of `model.reference.kv_pages`."""

import ctypes
from collections.abc import Sequence

from torch import Tensor

from draftwerk.model.batch.batch import Pages
from draftwerk.model.native.library import library


def copy_blocks(pages: Pages, copies: Sequence[tuple[int, int]]) -> None:
    """Copy whole blocks (from, to), all layers, as if at once."""
    _copy(pages, copies, pages.keys.shape[1], pages.keys[0, 0].numel())


def move_slots(pages: Pages, moves: Sequence[tuple[int, int]]) -> None:
    """Copy (from, to) slots of the flattened (block, offset) axis, all layers, as if at once."""
    slots = pages.keys.shape[1] * pages.block_size
    _copy(pages, moves, slots, pages.keys[0, 0, 0].numel())


def _copy(pages: Pages, pairs: Sequence[tuple[int, int]], units: int, elements: int) -> None:
    if not pairs:
        return
    if min(map(min, pairs)) < 0 or max(map(max, pairs)) >= units:
        raise ValueError("a copy reaches outside the pages")
    indexes = ctypes.c_int64 * len(pairs)
    sources, targets = (indexes(*side) for side in zip(*pairs, strict=True))
    for tensor in (pages.keys, pages.values):
        _copy_tensor(tensor, units, elements, sources, targets)


def _copy_tensor(
    tensor: Tensor, units: int, elements: int, sources: ctypes.Array, targets: ctypes.Array
) -> None:
    if tensor.device.type != "cpu" or not tensor.is_contiguous():
        raise ValueError("pages must be contiguous and on the CPU")
    size = elements * tensor.element_size()
    library().copy_tensor_units(
        tensor.data_ptr(), tensor.shape[0], units, size, sources, targets, len(sources)
    )
