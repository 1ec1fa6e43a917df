"""Attention that gives a token the same bits in any company: tiles of one shape, keys in order.

A tree of drafts is taken apart into its paths, so that a node's keys come in the order of its text
wherever they lie. Every call of torch's fused attention has as many queries, and a multiple of
as many keys: on a CPU it was measured to give a query the same bits so, whatever the others are.
Where nothing is known of its kernels `folded` takes the keys in products of one shape.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

from draftwerk.model.attention.padded import fused
from draftwerk.model.attention.signature import PLAIN, Scoring
from draftwerk.model.batch.batch import Batch
from draftwerk.model.batch.e4m3 import read

QUERIES, KEYS = 16, 512
TILES = 8
"""Tiles of a call of `folded`."""
Compute = Callable[[Tensor, Tensor, Tensor, Tensor, Scoring], Tensor]
"""`padded.fused`, or what returns the same."""
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

    def on(self, device: torch.device) -> "Tiles":
        """Return the same on a device."""
        return Tiles(*(getattr(self, each.name).to(device) for each in fields(self)))

    def attend(
        self,
        query: Tensor,
        keys: Tensor,
        values: Tensor,
        out: Tensor,
        scoring: Scoring,
        compute: Compute,
    ) -> None:
        """Write the tiles' rows of `out` [T, heads, D]; keys, values [slots, kv_heads, D]."""
        places = torch.arange(self.slots.shape[1], device=query.device)
        ends = self.ends[:, None, :, None]
        seen = places < ends
        if scoring.window:
            seen &= (places - self.centres[:, None, :, None]).abs() < scoring.window
        keys, values = (
            read(each, self.slots, query.dtype).transpose(1, 2).expand(len(seen), -1, -1, -1)
            for each in (keys, values)
        )
        attended = compute(query[self.queries].transpose(1, 2), keys, values, seen, scoring)
        out[self.queries[self.real]] = attended.transpose(1, 2)[self.real]


class TiledAttention:
    """The backend; keeps the tiles of the latest batch, which are the same for every layer."""

    def __init__(self, compute: Compute = fused) -> None:
        self._compute = compute
        self._batch: Batch | None = None
        self._tiles: list[Tiles] = []

    def __call__(
        self, query: Tensor, keys: Tensor, values: Tensor, batch: Batch, scoring: Scoring = PLAIN
    ) -> Tensor:
        """Map [T, heads, D] to the same; pages are [blocks, block_size, kv_heads, D]."""
        if batch is not self._batch:
            chains = list(chains_of(batch, keys.shape[1]))
            self._tiles = [each.on(query.device) for each in tiles_of(chains)]
            self._batch = batch
        out = torch.empty_like(query)
        for tiles in self._tiles:
            flat = keys.flatten(0, 1), values.flatten(0, 1)
            tiles.attend(query, *flat, out, scoring, self._compute)
        return out


def folded(query: Tensor, keys: Tensor, values: Tensor, seen: Tensor, scoring: Scoring) -> Tensor:
    """Return `padded.fused` of [B, heads, 16, D], by products of one shape whatever B and L are.

    Keys that a query does not see change nothing, so neither do tiles of them.
    """
    count = len(query)
    padding = 0, 0, 0, 0, 0, 0, 0, -count % TILES
    padded = (pad(each, padding).split(TILES) for each in (query, keys, values, seen))
    parts = [_folded(q, k, v, s, scoring) for q, k, v, s in zip(*padded, strict=True)]
    return torch.cat(parts)[:count]


def _folded(query: Tensor, keys: Tensor, values: Tensor, seen: Tensor, scoring: Scoring) -> Tensor:
    """Return the online softmax of flash attention over tiles of keys, in float32."""
    heads, kv_heads = query.shape[1], keys.shape[1]
    group = heads // kv_heads
    grouped = query.float().unflatten(1, (kv_heads, group)).flatten(2, 3)
    top = grouped.new_full((*grouped.shape[:-1], 1), torch.finfo(torch.float32).min)
    total, sums = torch.zeros_like(top), torch.zeros_like(grouped)
    visible = seen.repeat(1, 1, group, 1)
    for at in range(0, keys.shape[2], KEYS):
        here = slice(at, at + KEYS)
        scores = grouped @ keys[:, :, here].float().mT * (scoring.scale or query.shape[-1] ** -0.5)
        if scoring.softcap:
            scores = (scores / scoring.softcap).tanh() * scoring.softcap
        scores = scores.masked_fill(~visible[..., here], float("-inf"))
        higher = torch.maximum(top, scores.amax(-1, keepdim=True))
        fade, weights = (top - higher).exp(), (scores - higher).exp()
        total = total * fade + weights.sum(-1, keepdim=True)
        sums = sums * fade + weights @ values[:, :, here].float()
        top = higher
    if scoring.sinks is not None:
        own = scoring.sinks.float().view(kv_heads, group).repeat_interleave(QUERIES, 1)[..., None]
        higher = torch.maximum(top, own)
        fade = (top - higher).exp()
        total, sums = total * fade + (own - higher).exp(), sums * fade
    # Padding sees nothing.
    return (sums / total.clamp(min=1e-30)).view(query.shape).to(query.dtype)


def chains_of(batch: Batch, block_size: int) -> Iterator[Chain]:
    """Yield the chains of each row: a tree's are its paths, with what is new in each."""
    bounds = batch.row_starts.tolist()
    for row, length in enumerate(batch.kv_lengths.tolist()):
        begin, stop = bounds[row], bounds[row + 1]
        prefix, table = length - (stop - begin), batch.block_tables[row].cpu().numpy()

        def slots(places: Numbers, table: NDArray[np.int32] = table) -> Numbers:
            return table[places // block_size] * np.int64(block_size) + places % block_size

        masks = batch.ancestors[begin:stop].tolist()
        if masks[0] == -1:
            queries = np.arange(begin, stop)
            ends = queries - begin + prefix + 1
            if batch.seen is not None:
                ends = batch.seen[begin:stop].cpu().numpy().astype(np.int64)
            own = batch.positions[begin:stop].cpu().numpy() if batch.both_ways else ends - 1
            yield Chain(slots(np.arange(length)), queries, ends, own)
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
