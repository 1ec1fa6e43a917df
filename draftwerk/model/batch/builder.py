"""Rows with what options have of them: adapters, states, windows, tokens that are not in line."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from draftwerk.cache.kinds.recurrent_states import RowState
from draftwerk.model.batch.batch import Batch, RowsBuilder, filled_up, on_device
from draftwerk.model.batch.batch_state import BatchState
from draftwerk.speculative.costs.work import StepLoad
from draftwerk.speculative.rounds import Draft

NO_STATE = RowState(-1, -1)
"""The state of a row that begins a text, and whose end is of no interest."""


@dataclass
class BatchBuilder(RowsBuilder):
    """A batch under construction, of a model with any options."""

    window_first: int = 0
    """The first id of the blocks that layers with windows have of their own; 0 for none."""
    windows: list[tuple[int, ...]] = field(default_factory=list[tuple[int, ...]])
    """The tables of layers with windows, -1 where no block is held."""
    scattered: dict[int, list[int]] = field(default_factory=dict[int, list[int]])
    """Slots, in the row's sequence, of rows whose tokens are not in line, by the row's number."""
    adapters: list[int] = field(default_factory=list[int])
    """The adapters of the rows, -1 for none."""
    offsets: list[tuple[int, int, int]] = field(default_factory=list[tuple[int, int, int]])
    """(first token, tokens, what is added to their positions) of rows at other positions."""
    states: list[BatchState] = field(default_factory=list[BatchState])

    def add_places(
        self, tokens: list[int], places: list[int], blocks: tuple[int, ...], samples: bool
    ) -> int:
        """Add tokens at ascending slots of one sequence, each of which sees all slots before it.

        Returns the index of the last one's logits, if it `samples`.
        """
        first = len(self.outputs)
        if places:
            self.scattered[len(self.tables)] = places
            self.add_row(tokens, places[0], blocks)
        if places and samples:
            self.outputs.append(len(self.tokens) - 1)
        return first

    def add(
        self,
        known: list[int],
        start: int,
        blocks: tuple[int, ...],
        draft: Draft,
        samples: bool,
        with_logits: range = range(0),
        with_hidden: range = range(0),
        state: RowState = NO_STATE,
        **columns: Any,
    ) -> int:
        """Add a row, with its `state`, `adapter`, and the table `window` of layers with windows."""
        if known or draft.tokens:
            place = len(self.tokens), len(known), draft.parents, start
            self.states.append(BatchState(*place, state.source, state.target, state.saves))
        wanted = with_logits, with_hidden
        return super().add(known, start, blocks, draft, samples, *wanted, **columns)

    def add_row(
        self,
        tokens: list[int],
        start: int,
        blocks: tuple[int, ...],
        adapter: int = -1,
        window: tuple[int, ...] = (),
    ) -> None:
        super().add_row(tokens, start, blocks)
        self.windows.append(window)
        self.adapters.append(adapter)

    def with_row(self, load: StepLoad, number: int, slots: range) -> StepLoad:
        if number not in self.scattered:
            return super().with_row(load, number, slots)
        for place in self.scattered[number]:
            load = load.with_row(place, 1, 0)
        return load

    def batch(self, device: torch.device) -> Batch:
        batch = super().batch(device)
        batch.states = tuple(self.states)
        if self.scattered or self.window_first:
            places = self.places([stop - start for start, stop in pairwise(self.starts)])
        else:
            places = []
        if self.scattered:
            batch.seen = on_device([place + 1 for row in places for place in row], device)
        if max(self.adapters) >= 0:
            batch.adapters = on_device(self.adapters, device)
        if self.window_first:
            tables = self.window_tables()
            slots = on_device(self.slots(places, tables.tolist()), device)
            batch.window = replace(batch, slots=slots, block_tables=on_device(tables, device))
        return batch

    def places(self, counts: Sequence[int]) -> list[Sequence[int]]:
        places = super().places(counts)
        for number, own in self.scattered.items():
            places[number] = own
        return places

    def positions(self, places: Sequence[Sequence[int]]) -> list[int]:
        positions = super().positions(places)
        for first, count, offset in self.offsets:
            moved = [position + offset for position in positions[first : first + count]]
            positions[first : first + count] = moved
        return positions

    def window_tables(self) -> NDArray[np.int32]:
        """Return the tables of layers with windows, counted from the first of their blocks.

        No token sees what a block that is not held would have. A tile may read it all the same and
        weigh it by zero: the row's first block stands for it, whose slots are all computed.
        """
        tables = filled_up(self.windows)
        held = [next(block for block in table if block >= 0) for table in self.windows]
        first = np.array(held, np.int32)[:, None]
        return np.where(tables < self.window_first, first, tables) - np.int32(self.window_first)
