"""Block copies and slot moves over all layers: the fast twin of `model.reference.kv_pages`."""

import ctypes
from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor

from draftwerk.model.batch.batch import Pages
from draftwerk.model.native.calls.structs import TurnedKeys
from draftwerk.model.native.library import library
from draftwerk.model.native.pool import Pool
from draftwerk.model.reference.kv_pages import split_at


def copy_blocks(pages: Pages, copies: Sequence[tuple[int, int]]) -> None:
    """Copy whole blocks (from, to), all layers, as if at once."""
    if pages.window is not None:
        copies, further = split_at(copies, pages.keys.shape[1])
        copy_blocks(pages.window, further)
    _copy(pages, copies, pages.keys.shape[1], prod(pages.keys.shape[2:]))


def move_slots(pages: Pages, moves: Sequence[tuple[int, int]]) -> None:
    """Copy (from, to) slots of the flattened (block, offset) axis, all layers, as if at once."""
    slots = pages.keys.shape[1] * pages.block_size
    if pages.window is not None:
        moves, further = split_at(moves, slots)
        move_slots(pages.window, further)
    _copy(pages, moves, slots, prod(pages.keys.shape[3:]))


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


class NativeTurn:
    """Copies slots to other positions, their keys rotated."""

    def __init__(self, pool: Pool, inverse_frequencies: Sequence[float]) -> None:
        self._pool = pool
        self._frequencies = (ctypes.c_float * len(inverse_frequencies))(*inverse_frequencies)

    def __call__(
        self, pages: Pages, sources: Sequence[int], targets: Sequence[int], turn: int
    ) -> None:
        """Copy slots in all layers, their keys rotated by `turn` positions."""
        pairs = list(zip(sources, targets, strict=True))
        if not turn or not pairs:
            move_slots(pages, pairs)
            return
        keys, slots = pages.keys, pages.keys.shape[1] * pages.block_size
        if max(map(max, pairs)) >= slots or min(map(min, pairs)) < 0:
            raise ValueError("a copy reaches outside the pages")
        indexes = ctypes.c_int64 * len(pairs)
        from_, to = (indexes(*side) for side in zip(*pairs, strict=True))
        turned = TurnedKeys(
            keys=keys.data_ptr(),
            inverse_frequencies=ctypes.addressof(self._frequencies),
            sources=ctypes.addressof(from_),
            targets=ctypes.addressof(to),
            slots=slots,
            heads=keys.shape[3],
            size=keys.shape[4],
            is_bf16=keys.dtype == torch.bfloat16,
            count=len(pairs),
            turn=turn,
        )
        self._pool.library.turn_tensor_keys(self._pool.handle, turned, keys.shape[0])
        _copy_tensor(pages.values, slots, pages.values[0, 0, 0].numel(), from_, to)
