"""Rows of a round laid end to end: lists first, then one tensor each."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from draftwerk.cache.kinds.recurrent_states import RowState
from draftwerk.model.batch.batch import Batch, BatchState, Facts
from draftwerk.speculative.costs.work import StepLoad
from draftwerk.speculative.protocol.rounds import Draft

NO_STATE = RowState(-1, -1)
"""The state of a row that begins a text, and whose end is of no interest."""
MASKED_MAX = 63
"""New tokens of a row with ancestor masks: the bits of an int64 without its sign."""


@dataclass(slots=True)
class BatchBuilder:
    """A batch under construction.

    tokens    ... known[start:stop]  node 0  node 1 ...  | the next row ...
    slots           start .. stop-1  stop    stop + 1    |
    """

    block_size: int
    window_first: int = 0
    """The first id of the blocks that layers with windows have of their own; 0 for none."""
    tokens: list[int] = field(default_factory=list)
    starts: list[int] = field(default_factory=lambda: [0])
    firsts: list[int] = field(default_factory=list)
    """The slot index, in its sequence, of each row's first new token."""
    tables: list[tuple[int, ...]] = field(default_factory=list)
    windows: list[tuple[int, ...]] = field(default_factory=list[tuple[int, ...]])
    """The same of layers with windows, -1 where no block is held."""
    trees: list[tuple[int, list[int], list[int]]] = field(default_factory=list)
    """(first token, positions, ancestors) of the rows with masks."""
    outputs: list[int] = field(default_factory=list)
    """The tokens whose logits are computed."""
    hidden: list[int] = field(default_factory=list)
    """The tokens of which hidden states alone are computed."""
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
            self._add_row(tokens, places[0], blocks)
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
        adapter: int = -1,
        state: RowState = NO_STATE,
        with_hidden: range = range(0),
        window: tuple[int, ...] = (),
    ) -> int:
        """Add known tokens and their draft; return the index of its first logits in the output.

        Logits of the known tokens `with_logits`, by index, come before it; those `with_hidden` have
        hidden states alone. With `samples`, logits are computed of the last known token and then of
        every node. Without known tokens only the nodes are computed. `window` is the table of
        layers with windows.
        """
        if not known and not draft.tokens:
            return len(self.outputs)
        self.outputs.extend(len(self.tokens) + index for index in with_logits)
        place = len(self.tokens), len(known), draft.parents, start
        self.states.append(BatchState(*place, state.source, state.target, state.saves))
        self.hidden.extend(len(self.tokens) + index for index in with_hidden)
        if is_chain(draft):
            self._add_row([*known, *draft.tokens], start, blocks, adapter, window)
        else:
            self._add_tree(known, start, blocks, draft, adapter, window)
        first = len(self.outputs)
        if samples:
            end = len(self.tokens)
            self.outputs.extend(range(end - len(draft.tokens) - bool(known), end))
        return first

    def _add_row(
        self,
        tokens: list[int],
        start: int,
        blocks: tuple[int, ...],
        adapter: int = -1,
        window: tuple[int, ...] = (),
    ) -> None:
        self.tokens.extend(tokens)
        self.starts.append(len(self.tokens))
        self.firsts.append(start)
        self.tables.append(blocks)
        self.windows.append(window)
        self.adapters.append(adapter)

    def _add_tree(
        self,
        known: list[int],
        start: int,
        blocks: tuple[int, ...],
        draft: Draft,
        adapter: int,
        window: tuple[int, ...],
    ) -> None:
        if len(known) + len(draft.tokens) > MASKED_MAX:
            # A causal row for all but the last known token; the mask then needs to name no more.
            self._add_row(known[:-1], start, blocks, adapter, window)
            known, start = known[-1:], start + len(known) - 1
        depths = [start + index for index in range(len(known))]
        # Known tokens are in causal order; each node adds itself to what its parent sees.
        masks = [(2 << index) - 1 for index in range(len(known))]
        depths += [start + len(known) + depth for depth in draft.depths()]
        end, above = len(known), masks[-1] if masks else 0
        for node, parent in enumerate(draft.parents):
            masks.append((masks[end + parent] if parent >= 0 else above) | 1 << end + node)
        self.trees.append((len(self.tokens), depths, masks))
        self._add_row([*known, *draft.tokens], start, blocks, adapter, window)

    def load(self) -> StepLoad:
        """Return what a step over this batch computes; a node attends to its own path alone."""
        load = StepLoad(outputs=len(self.outputs))
        rows = zip(self.firsts, self.starts, self.starts[1:], strict=False)
        for number, (first, start, stop) in enumerate(rows):
            if number in self.scattered:
                for place in self.scattered[number]:
                    load = load.with_row(place, 1, 0)
            else:
                load = load.with_row(first, stop - start, 0)
        # A row counts all slots before a node, also those of other branches, which it does not see.
        spared = 0
        for _, depths, _ in self.trees:
            spared += sum(range(depths[0], depths[0] + len(depths))) - sum(depths)
        return msgspec.structs.replace(load, context_tokens=load.context_tokens - spared)

    def batch(self, device: torch.device) -> Batch:
        """Return the tensors.

        Lists and few arrays, since most rounds are of few tokens: behind a forward pass, which
        leaves no code in the caches, many small operations took a tenth of a small model's step.
        """
        counts = [stop - start for start, stop in pairwise(self.starts)]
        places = self._places(counts)
        ends = [row[-1] + 1 for row in places]
        positions = list(chain.from_iterable(places))
        seen = [place + 1 for place in positions] if self.scattered else None
        for first, count, offset in self.offsets:
            moved = [position + offset for position in positions[first : first + count]]
            positions[first : first + count] = moved
        ancestors = [-1] * len(self.tokens)
        for first, depths, masks in self.trees:
            positions[first : first + len(depths)] = depths
            ancestors[first : first + len(masks)] = masks

        def tensor(values: Sequence[int] | NDArray[np.int32], dtype: type = np.int32) -> Tensor:
            return torch.from_numpy(np.asarray(values, dtype)).to(device)

        slots = self._slots(places, self.tables)
        lists = (self.tokens, positions, slots, self.starts, ends, self.outputs + self.hidden)
        whole = torch.from_numpy(np.array([*chain.from_iterable(lists)], np.int32))
        parts = [part.to(device) for part in whole.split([*map(len, lists)])]
        batch = Batch(
            *parts[:5],
            block_tables=tensor(_filled_up(self.tables)),
            ancestors=tensor(ancestors, np.int64),
            outputs=parts[5],
            facts=Facts(max(counts), max(ends), bool(self.trees)),
            states=tuple(self.states),
            logit_count=len(self.outputs) if self.hidden else None,
            seen=None if seen is None else tensor(seen),
            adapters=None if max(self.adapters) < 0 else tensor(self.adapters),
        )
        if self.window_first:
            window_tables = self.window_tables()
            slots = tensor(self._slots(places, window_tables.tolist()))
            batch.window = replace(batch, slots=slots, block_tables=tensor(window_tables))
        return batch

    def _places(self, counts: Sequence[int]) -> list[Sequence[int]]:
        """Return the slots of each row's tokens, in its sequence."""
        rows = zip(self.firsts, counts, strict=True)
        return [
            self.scattered.get(number) or range(first, first + count)
            for number, (first, count) in enumerate(rows)
        ]

    def _slots(self, places: Sequence[Sequence[int]], tables: Sequence[Sequence[int]]) -> list[int]:
        """Return the slots of all tokens, by the block tables of some layers."""
        size = self.block_size
        return [
            table[place // size] * size + place % size
            for row, table in zip(places, tables, strict=True)
            for place in row
        ]

    def window_tables(self) -> NDArray[np.int32]:
        """Return the tables of layers with windows, counted from the first of their blocks.

        No token sees what a block that is not held would have. A tile may read it all the same and
        weigh it by zero: the row's first block stands for it, whose slots are all computed.
        """
        tables = _filled_up(self.windows)
        held = [next(block for block in table if block >= 0) for table in self.windows]
        first = np.array(held, np.int32)[:, None]
        return np.where(tables < self.window_first, first, tables) - np.int32(self.window_first)


def _filled_up(tables: Sequence[tuple[int, ...]]) -> NDArray[np.int32]:
    """Return block tables, each filled up with zeros."""
    width = max(map(len, tables))
    return np.array([table + (0,) * (width - len(table)) for table in tables], np.int32)


def is_chain(draft: Draft) -> bool:
    """Whether each node follows the one before it."""
    return draft.parents == tuple(range(-1, len(draft.tokens) - 1))
