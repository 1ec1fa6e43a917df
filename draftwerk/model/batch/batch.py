"""One round as tensors, which `forward` reads, and the rows that they are laid out from."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import Any, Protocol

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from draftwerk.cache.kinds.window_table import NO_WINDOW_BLOCKS, WindowBlocks
from draftwerk.model.batch.added_rows import AddedRows
from draftwerk.model.batch.batch_state import BatchState
from draftwerk.speculative.costs.work import StepLoad
from draftwerk.speculative.rounds import Draft

MASKED_MAX = 63
"""New tokens of a row with ancestor masks: the bits of an int64 without its sign."""


@dataclass(slots=True)
class Pages:
    """The KV cache's tensors: keys and values [planes, blocks, block_size, kv_heads, head_size].

    A layer that attends has one plane.
    """

    keys: Tensor
    values: Tensor
    states: Tensor | None = None
    """Slots of recurrent states, [slots, numbers] in float32; None without recurrent layers."""
    window: "Pages | None" = None
    """Pages of layers with windows that have blocks of their own; these are the others' then."""
    window_blocks: WindowBlocks = NO_WINDOW_BLOCKS
    """Which of these blocks a row reads."""
    block_count: int = field(init=False)
    block_size: int = field(init=False)
    """A tensor's shape takes longer to look up, and every row asks for it."""

    def __post_init__(self) -> None:
        self.block_count, self.block_size = self.keys.shape[1:3]

    @property
    def window_first(self) -> int:
        """The first id of the blocks of layers with windows; 0 where all layers share theirs."""
        return 0 if self.window is None else self.keys.shape[1]


@dataclass(slots=True)
class Batch:
    """A round of T tokens in R rows; int32 tensors on the model's device unless stated otherwise.

        row r owns the new tokens   row_starts[r] .. row_starts[r + 1]
        it sees the slots           0 .. kv_lengths[r]   of its block table, its new tokens last
        so its committed prefix is  kv_lengths[r] - (row_starts[r + 1] - row_starts[r]) long

    New token i of a row is in slot `prefix + i`. It sees the whole prefix and, of the row's own
    new tokens, those named by `ancestors`: bit j (int64) for new token j, itself included; -1 means
    plain causal order (every j <= i), which prefill chunks of any length use. Masked rows have at
    most 63 new tokens.
    """

    tokens: Tensor
    """[T] token ids."""
    positions: Tensor
    """[T] rope positions, of a tree's nodes prefix + depth; or [T, pairs], one for each pair."""
    slots: Tensor
    """[T] where K and V go: block * block_size + offset, in the flattened (block, offset) axis."""
    row_starts: Tensor
    """[R + 1] ("cu_seqlens_q")."""
    kv_lengths: Tensor
    """[R] ("seqused_k")."""
    block_tables: Tensor
    """[R, width], padded with 0."""
    ancestors: Tensor
    """[T] int64."""
    outputs: Tensor
    """[S] tokens whose states are computed, each once: ascending those with logits, then others."""
    facts: "Facts | None" = None
    """Facts about the tensors, on the host; reading them from a GPU would stop the queue."""
    seen: Tensor | None = None
    """[T] of a token in causal order, how many slots of its row it sees, ascending within the row;
    None means `prefix + i + 1` of new token i."""
    both_ways: bool = False
    """Whether windows have as many positions behind a token as before it."""
    adapters: Tensor | None = None
    """[R] the number of each row's adapter, -1 for none; None where no row has one."""
    logit_count: int | None = None
    """How many of the outputs have logits; None means all."""
    layers: int | None = None
    """Layers to run; fewer than all compute no logits, and of the last keys and values alone."""
    states: tuple[BatchState, ...] = ()
    """The state of each sequence, in the order of tokens."""
    paths: Tensor | None = None
    """[T, 64] the new tokens of each path, sorted once for the layers of an attention in order."""
    added: AddedRows | None = None
    window: "Batch | None" = None
    """The same with slots and tables of `Pages.window`, any block for one behind the windows."""


@dataclass(frozen=True, slots=True)
class Facts:
    """Bounds on a batch; a padded batch has larger ones."""

    row_max: int
    """New tokens of the longest row."""
    kv_max: int
    """Slots that the longest row sees."""
    masked: bool
    """Whether some row has ancestor masks."""


def facts_of(batch: Batch) -> Facts:
    """Return the batch's own facts, or read them off the tensors."""
    return batch.facts or Facts(
        int(batch.row_starts.diff().max()),
        int(batch.kv_lengths.max()),
        bool((batch.ancestors != -1).any()),
    )


def logit_count_of(batch: Batch) -> int:
    """Return how many of the batch's outputs have logits."""
    return batch.outputs.shape[0] if batch.logit_count is None else batch.logit_count


class Forward(Protocol):
    """A model bound to its weights: writes the batch's K and V into the pages, returns logits."""

    def __call__(self, batch: Batch, pages: Pages) -> Tensor:
        """Return float32 logits [S, vocab], at least of the outputs that have some."""
        ...


@dataclass(slots=True)
class RowsBuilder:
    """A batch under construction.

    tokens    ... known[start:stop]  node 0  node 1 ...  | the next row ...
    slots           start .. stop-1  stop    stop + 1    |
    """

    block_size: int
    tokens: list[int] = field(default_factory=list)
    starts: list[int] = field(default_factory=lambda: [0])
    firsts: list[int] = field(default_factory=list)
    """The slot index, in its sequence, of each row's first new token."""
    tables: list[tuple[int, ...]] = field(default_factory=list)
    trees: list[tuple[int, list[int], list[int]]] = field(default_factory=list)
    """(first token, positions, ancestors) of the rows with masks."""
    outputs: list[int] = field(default_factory=list)
    """The tokens whose logits are computed."""
    hidden: list[int] = field(default_factory=list)
    """The tokens of which hidden states alone are computed."""

    def add(
        self,
        known: list[int],
        start: int,
        blocks: tuple[int, ...],
        draft: Draft,
        samples: bool,
        with_logits: range = range(0),
        with_hidden: range = range(0),
        **columns: Any,
    ) -> int:
        """Add known tokens and their draft; return the index of its first logits in the output.

        Logits of the known tokens `with_logits`, by index, come before it; those `with_hidden` have
        hidden states alone. With `samples`, logits are computed of the last known token and then of
        every node. Without known tokens only the nodes are computed. `columns` are what `add_row`
        takes besides.
        """
        if not known and not draft.tokens:
            return len(self.outputs)
        self.outputs.extend(len(self.tokens) + index for index in with_logits)
        self.hidden.extend(len(self.tokens) + index for index in with_hidden)
        if is_chain(draft):
            self.add_row([*known, *draft.tokens], start, blocks, **columns)
        else:
            self._add_tree(known, start, blocks, draft, **columns)
        first = len(self.outputs)
        if samples:
            end = len(self.tokens)
            self.outputs.extend(range(end - len(draft.tokens) - bool(known), end))
        return first

    def add_row(self, tokens: list[int], start: int, blocks: tuple[int, ...]) -> None:
        """Add tokens at slots in line."""
        self.tokens.extend(tokens)
        self.starts.append(len(self.tokens))
        self.firsts.append(start)
        self.tables.append(blocks)

    def _add_tree(
        self,
        known: list[int],
        start: int,
        blocks: tuple[int, ...],
        draft: Draft,
        **columns: Any,
    ) -> None:
        if len(known) + len(draft.tokens) > MASKED_MAX:
            # A causal row for all but the last known token; the mask then needs to name no more.
            self.add_row(known[:-1], start, blocks, **columns)
            known, start = known[-1:], start + len(known) - 1
        depths = [start + index for index in range(len(known))]
        # Known tokens are in causal order; each node adds itself to what its parent sees.
        masks = [(2 << index) - 1 for index in range(len(known))]
        depths += [start + len(known) + depth for depth in draft.depths()]
        end, above = len(known), masks[-1] if masks else 0
        for node, parent in enumerate(draft.parents):
            masks.append((masks[end + parent] if parent >= 0 else above) | 1 << end + node)
        self.trees.append((len(self.tokens), depths, masks))
        self.add_row([*known, *draft.tokens], start, blocks, **columns)

    def load(self) -> StepLoad:
        """Return what a step over this batch computes; a node attends to its own path alone."""
        load = StepLoad(outputs=len(self.outputs))
        rows = zip(self.firsts, self.starts, self.starts[1:], strict=False)
        for number, (first, start, stop) in enumerate(rows):
            load = self.with_row(load, number, range(first, first + stop - start))
        # A row counts all slots before a node, also those of other branches, which it does not see.
        spared = 0
        for _, depths, _ in self.trees:
            spared += sum(range(depths[0], depths[0] + len(depths))) - sum(depths)
        return msgspec.structs.replace(load, context_tokens=load.context_tokens - spared)

    def with_row(self, load: StepLoad, number: int, slots: range) -> StepLoad:
        """Add a row's tokens, in line, to a load."""
        return load.with_row(slots.start, len(slots), 0)

    def batch(self, device: torch.device) -> Batch:
        """Return the tensors.

        Lists and few arrays, since most rounds are of few tokens: behind a forward pass, which
        leaves no code in the caches, many small operations took a tenth of a small model's step.
        """
        places = self.places([stop - start for start, stop in pairwise(self.starts)])
        ends = [row[-1] + 1 for row in places]
        positions = self.positions(places)
        ancestors = [-1] * len(self.tokens)
        for first, depths, masks in self.trees:
            positions[first : first + len(depths)] = depths
            ancestors[first : first + len(masks)] = masks
        slots = self.slots(places, self.tables)
        lists = (self.tokens, positions, slots, self.starts, ends, self.outputs + self.hidden)
        whole = torch.from_numpy(np.array([*chain.from_iterable(lists)], np.int32))
        parts = [part.to(device) for part in whole.split([*map(len, lists)])]
        return Batch(
            *parts[:5],
            block_tables=on_device(filled_up(self.tables), device),
            ancestors=on_device(ancestors, device, np.int64),
            outputs=parts[5],
            facts=Facts(max(map(len, places)), max(ends), bool(self.trees)),
            logit_count=len(self.outputs) if self.hidden else None,
        )

    def places(self, counts: Sequence[int]) -> list[Sequence[int]]:
        """Return the slots of each row's tokens, in its sequence."""
        pairs = zip(self.firsts, counts, strict=True)
        return [range(first, first + count) for first, count in pairs]

    def positions(self, places: Sequence[Sequence[int]]) -> list[int]:
        """Return the positions of all tokens that lie in line."""
        return list(chain.from_iterable(places))

    def slots(self, places: Sequence[Sequence[int]], tables: Sequence[Sequence[int]]) -> list[int]:
        """Return the slots of all tokens, by the block tables of some layers."""
        size = self.block_size
        return [
            table[place // size] * size + place % size
            for row, table in zip(places, tables, strict=True)
            for place in row
        ]


def on_device(
    values: Sequence[int] | NDArray[np.int32], device: torch.device, dtype: type = np.int32
) -> Tensor:
    """Return a tensor on a device."""
    return torch.from_numpy(np.asarray(values, dtype)).to(device)


def filled_up(tables: Sequence[tuple[int, ...]]) -> NDArray[np.int32]:
    """Return block tables, each filled up with zeros."""
    width = max(map(len, tables))
    return np.array([table + (0,) * (width - len(table)) for table in tables], np.int32)


def is_chain(draft: Draft) -> bool:
    """Whether each node follows the one before it."""
    return draft.parents == tuple(range(-1, len(draft.tokens) - 1))
