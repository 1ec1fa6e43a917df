"""The arrays of a round for the kernels: its batch, pages and recurrent states."""

import ctypes
from itertools import chain
from math import prod

import numpy as np
import torch
from torch import Tensor

from draftwerk.model.batch.added_rows import AddedRows
from draftwerk.model.batch.batch import Batch, Pages, logit_count_of
from draftwerk.model.checkpoint.config import ModelConfig
from draftwerk.model.native.calls.structs import RoundArrays, StateRow


def set_states(arrays: RoundArrays, pages: Pages, config: ModelConfig) -> None:
    if pages.states is None:
        return
    check_tensor("states", pages.states, torch.float32)
    if pages.states.shape[1] != config.state_size:
        raise ValueError(f"states are another model's: {tuple(pages.states.shape)}")
    arrays.state_slots, arrays.state_numbers = pages.states.data_ptr(), config.state_size


class StateRows:
    """The recurrent states of a batch, as the library has them."""

    def __init__(self, batch: Batch, pages: Pages, config: ModelConfig) -> None:
        """Without slots each text begins, and nothing is kept of it. Raises ValueError."""
        if not batch.states:
            raise ValueError("a batch without states")
        self._pages, self._config = pages, config
        self.node_starts: dict[int, int] = {}
        """By a row's first token, the number of its first node."""
        self._rows = (StateRow * len(batch.states))()
        parents = np.full(len(batch.tokens), -1, np.int32)
        saves: list[int] = []
        nodes = 0
        for row, state in zip(self._rows, batch.states, strict=True):
            source, target, own = state.source, state.target, state.saves
            if pages.states is None:
                source, target, own = -1, -1, ()
            row.first, row.count, row.nodes = state.first, state.count, len(state.parents)
            row.start, row.source, row.target = state.start, source, target
            row.first_save, row.saves = len(saves) // 2, len(own)
            saves += chain.from_iterable(own)
            behind = state.first + state.count
            parents[behind : behind + len(state.parents)] = state.parents
            self.node_starts[state.first] = nodes
            nodes += len(state.parents)
        self._parents, self._saves = parents, np.array(saves, np.int32)
        self._check(len(batch.tokens))

    def _check(self, tokens: int) -> None:
        slots = 0 if self._pages.states is None else len(self._pages.states)
        end = 0
        for row in self._rows:
            if row.first != end or row.count < 1:
                raise ValueError("states do not cover the tokens")
            end = row.first + row.count + row.nodes
            if not (-1 <= row.source < max(slots, 0) and -1 <= row.target < max(slots, 0)):
                raise ValueError("a state is outside its slots")
        if end != tokens or any(not 0 <= slot < slots for slot in self._saves[1::2]):
            raise ValueError("states do not cover the tokens")

    def describe(self, arrays: RoundArrays) -> None:
        """Tell the library; what it is told of lives as long as this."""
        set_states(arrays, self._pages, self._config)
        arrays.state_row_count = len(self._rows)
        arrays.state_rows = ctypes.addressof(self._rows)
        arrays.state_parents = self._parents.ctypes.data
        arrays.state_saves = self._saves.ctypes.data


def arrays_of(batch: Batch, pages: Pages, logits: Tensor, states: Tensor | None) -> RoundArrays:
    arrays = RoundArrays(
        # A tensor's length takes a call of Python, its shape none.
        token_count=batch.tokens.shape[0],
        row_count=batch.kv_lengths.shape[0],
        table_width=batch.block_tables.shape[1],
        output_count=batch.outputs.shape[0],
        logit_count=logit_count_of(batch),
        block_count=pages.keys.shape[1],
        block_size=pages.block_size,
        slot_bytes=slot_bytes(pages),
        keys=pages.keys.data_ptr(),
        values=pages.values.data_ptr(),
        logits=logits.data_ptr(),
        states=None if states is None else states.data_ptr(),
    )
    tokens, rows = arrays.token_count, arrays.row_count
    sizes = {"tokens": tokens, "positions": tokens, "slots": tokens, "row_starts": rows + 1}
    sizes |= {"kv_lengths": rows, "block_tables": rows, "ancestors": tokens}
    sizes |= {"outputs": arrays.output_count}
    if batch.seen is not None:
        sizes["seen"] = tokens
    if batch.adapters is not None:
        sizes["adapters"] = rows
    for name, size in sizes.items():
        tensor: Tensor = getattr(batch, name)
        check_tensor(name, tensor, torch.int64 if name == "ancestors" else torch.int32)
        if tensor.shape[0] != size:
            raise ValueError(f"{name} has {len(tensor)} entries, not {size}")
        setattr(arrays, name, tensor.data_ptr())
    arrays.position_count = 1 if batch.positions.ndim == 1 else batch.positions.shape[1]
    arrays.both_ways = batch.both_ways
    if batch.added is not None:
        _set_added(arrays, batch.added)
    if pages.window is not None:
        _set_window(arrays, batch, pages.window)
    return arrays


def _set_added(arrays: RoundArrays, added: AddedRows) -> None:
    """Tell of what is added behind the first layers."""
    check_tensor("added rows", added.rows, torch.float32)
    check_tensor("their numbers", added.numbers, torch.int32)
    if len(added.numbers) != arrays.token_count:
        raise ValueError(f"{len(added.numbers)} tokens have rows added, not {arrays.token_count}")
    arrays.added_layers, arrays.added_count = added.rows.shape[:2]
    arrays.added, arrays.added_rows = added.rows.data_ptr(), added.numbers.data_ptr()


def _set_window(arrays: RoundArrays, batch: Batch, pages: Pages) -> None:
    """Tell of the blocks of layers with windows."""
    own = batch.window
    if own is None or own.block_tables.shape != batch.block_tables.shape:
        raise ValueError("a batch without tables of its windows")
    check_tensor("window slots", own.slots, torch.int32)
    check_tensor("window tables", own.block_tables, torch.int32)
    arrays.window_slots = own.slots.data_ptr()
    arrays.window_tables = own.block_tables.data_ptr()
    arrays.window_keys, arrays.window_values = pages.keys.data_ptr(), pages.values.data_ptr()
    arrays.window_block_count = pages.keys.shape[1]
    arrays.window_slot_bytes = slot_bytes(pages)


def slot_bytes(pages: Pages) -> int:
    """Return what the keys of one token take."""
    return prod(pages.keys.shape[3:]) * pages.keys.element_size()


def check_tensor(name: str, tensor: Tensor, dtype: torch.dtype) -> None:
    if tensor.dtype != dtype or tensor.device.type != "cpu" or not tensor.is_contiguous():
        raise ValueError(f"{name} must be a contiguous {dtype} tensor on the CPU")
