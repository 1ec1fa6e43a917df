"""Attention that gives a token the same bits in any company: tiles of one shape, keys in order.

A tree of drafts is taken apart into its paths, so that a node's keys come in the order of its text
wherever they lie. Every call of torch's fused attention has as many queries, and a multiple of as
many keys: it was measured to give a query the same bits so, whatever the others are.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from draftwerk.model.attention.padded import fused
from draftwerk.model.attention.signature import PLAIN, Scoring
from draftwerk.model.batch.batch import Batch

QUERIES, KEYS = 16, 512
Numbers = NDArray[np.int64]


class Chain(NamedTuple):
    """Tokens of a row of which each follows the one before."""

    slots: Numbers
    """[L] of the row's text up to the last of them, in its order."""
    queries: Numbers
    """Indexes into T of those that are computed."""
    ends: Numbers
    """How many slots each of these sees."""
    centres: Numbers
    """The place of each of these, from which its window is counted."""


@dataclass(frozen=True, slots=True)
class Tiles:
    """B tiles of chains as one call with 16 queries and L keys each."""

    queries: Tensor
    """[B, 16] indexes into T; padding repeats a tile's first."""
    real: Tensor
    """[B, 16] booleans, false for padding."""
    ends: Tensor
    """[B, 16] how many keys each query sees."""
    centres: Tensor
    """[B, 16] where the window of each query is."""
    slots: Tensor
    """[B, L], or [1, L] of one chain's tiles; padding is slot 0."""

    def attend(
        self, query: Tensor, keys: Tensor, values: Tensor, out: Tensor, scoring: Scoring
    ) -> None:
        """Write the tiles' rows of `out` [T, heads, D]; keys, values [slots, kv_heads, D]."""
        places = torch.arange(self.slots.shape[1], device=query.device)
        ends = self.ends[:, None, :, None]
        seen = places < ends
        if scoring.window:
            seen &= (places - self.centres[:, None, :, None]).abs() < scoring.window
        keys, values = (
            each[self.slots].transpose(1, 2).expand(len(seen), -1, -1, -1)
            for each in (keys, values)
        )
        attended = fused(query[self.queries].transpose(1, 2), keys, values, seen, scoring)
        out[self.queries[self.real]] = attended.transpose(1, 2)[self.real]


class TiledAttention:
    """The backend; keeps the tiles of the latest batch, which are the same for every layer."""

    def __init__(self) -> None:
        self._batch: Batch | None = None
        self._tiles: list[Tiles] = []

    def __call__(
        self, query: Tensor, keys: Tensor, values: Tensor, batch: Batch, scoring: Scoring = PLAIN
    ) -> Tensor:
        """Map [T, heads, D] to the same; pages are [blocks, block_size, kv_heads, D]."""
        if batch is not self._batch:
            self._tiles = list(tiles_of(list(chains_of(batch, keys.shape[1]))))
            self._batch = batch
        out = torch.empty_like(query)
        for tiles in self._tiles:
            tiles.attend(query, keys.flatten(0, 1), values.flatten(0, 1), out, scoring)
        return out


def chains_of(batch: Batch, block_size: int) -> Iterator[Chain]:
    """Yield the chains of each row: a tree's are its paths, with what is new in each."""
    bounds = batch.row_starts.tolist()
    for row, length in enumerate(batch.kv_lengths.tolist()):
        begin, stop = bounds[row], bounds[row + 1]
        prefix, table = length - (stop - begin), batch.block_tables[row].numpy()

        def slots(places: Numbers, table: NDArray[np.int32] = table) -> Numbers:
            return table[places // block_size] * np.int64(block_size) + places % block_size

        masks = batch.ancestors[begin:stop].tolist()
        if masks[0] == -1:
            queries = np.arange(begin, stop)
            ends = queries - begin + prefix + 1
            if batch.seen is not None:
                ends = batch.seen[begin:stop].numpy().astype(np.int64)
            centres = batch.positions[begin:stop].numpy() if batch.both_ways else ends - 1
            yield Chain(slots(np.arange(length)), queries, ends, centres)
            continue
        for path, new in paths_of(masks):
            places = np.concatenate([np.arange(prefix), prefix + np.array(path)])
            depths = np.array([depth for depth, node in enumerate(path, 1) if node in new])
            queries = begin + np.array(path)[depths - 1]
            yield Chain(slots(places), queries, prefix + depths, prefix + depths - 1)


def paths_of(masks: Sequence[int]) -> Iterator[tuple[list[int], set[int]]]:
    """Yield a tree's paths down to its leaves, and which nodes were in none before."""
    inner = 0
    for node, mask in enumerate(masks):
        inner |= mask & ~(1 << node)
    left = set(range(len(masks)))
    for node, mask in enumerate(masks):
        if not inner >> node & 1:
            path = [other for other in range(node + 1) if mask >> other & 1]
            yield path, left.intersection(path)
            left -= {*path}


def tiles_of(chains: Sequence[Chain]) -> Iterator[Tiles]:
    """Yield the chains of one tile together, and the tiles of each longer chain."""
    short = [chain for chain in chains if len(chain.queries) <= QUERIES]
    if short:
        size = max(len(chain.slots) for chain in short)
        yield _tiles(short, [_padded(chain.slots, size) for chain in short])
    for chain in chains:
        if (count := len(chain.queries)) > QUERIES:
            cuts = range(QUERIES, count, QUERIES)
            parts = zip(*(np.split(each, cuts) for each in chain[1:]), strict=True)
            pieces = [Chain(chain.slots, *part) for part in parts]
            yield _tiles(pieces, [_padded(chain.slots, len(chain.slots))])


def _tiles(chains: Sequence[Chain], slots: Sequence[Numbers]) -> Tiles:
    counts = np.array([len(chain.queries) for chain in chains])
    queries, ends, centres = (
        np.stack(
            [np.pad(each, (0, QUERIES - len(each)), constant_values=each[0]) for each in parts]
        )
        for parts in zip(*(chain[1:] for chain in chains), strict=True)
    )
    real = np.arange(QUERIES) < counts[:, None]
    arrays = queries, real, ends, centres, np.stack(slots)
    return Tiles(*(torch.from_numpy(each) for each in arrays))


def _padded(slots: Numbers, size: int) -> Numbers:
    """Return slots up to the next multiple of `KEYS` beyond a size."""
    return np.pad(slots, (0, -(-size // KEYS) * KEYS - len(slots)))
