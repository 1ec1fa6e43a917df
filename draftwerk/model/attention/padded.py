"""Attention in a few torch calls a layer: rows padded to one shape, then fused attention.

Verify rows are short and share one call; a prefill chunk has one of its own. A row's bits depend on
how far it is padded; those of `TiledAttention` do not.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from draftwerk.model.attention.reference import shares
from draftwerk.model.attention.signature import PLAIN, Scoring
from draftwerk.model.batch.batch import Batch
from draftwerk.model.batch.e4m3 import read

SHORT_MAX = 16
"""New tokens up to which rows share a call."""
KEYS_MULTIPLE = 64
KEYS_AT_ONCE = 512
"""The keys of a product's sums, whose order would depend on their number."""


@dataclass(frozen=True, slots=True)
class Group:
    """Rows [R] of similar length as one call with N queries and L keys a row."""

    queries: Tensor
    """[R, N] indexes into T; padding repeats the row's first."""
    slots: Tensor
    """[R, L] indexes into the flattened (block, offset) axis; padding is slot 0 of some block."""
    seen: Tensor
    """[R, 1, N, L] booleans."""
    real: Tensor
    """[R, N] booleans, false for padding."""
    centres: Tensor | None = None
    """[R, N] positions, where windows are both before and behind them; -1 for a tree's nodes."""

    def attend(
        self, query: Tensor, keys: Tensor, values: Tensor, out: Tensor, scoring: Scoring
    ) -> None:
        """Write the group's rows of `out` [T, heads, D]; keys, values [slots, kv_heads, D]."""
        seen = self.seen
        if scoring.window:
            within = seen.flip(-1).cumsum(-1).flip(-1) <= scoring.window
            if self.centres is not None:
                places, centres = torch.arange(seen.shape[-1]), self.centres[:, None, :, None]
                near = (places.to(seen.device) - centres).abs() < scoring.window
                within = torch.where(centres >= 0, near, within)
            seen = seen & within
        rows = (
            query[self.queries].transpose(1, 2),
            read(keys, self.slots, query.dtype).transpose(1, 2),
            read(values, self.slots, query.dtype).transpose(1, 2),
        )
        attended = fused(*rows, seen, scoring)
        out[self.queries[self.real]] = attended.transpose(1, 2)[self.real]


class PaddedAttention:
    """The backend; keeps the grouping of the latest batch, which is the same for every layer."""

    def __init__(self) -> None:
        self._batch: Batch | None = None
        self._groups: list[Group] = []

    def __call__(
        self,
        query: Tensor,
        keys: Tensor,
        values: Tensor,
        batch: Batch,
        scoring: Scoring = PLAIN,
    ) -> Tensor:
        """Map [T, heads, D] to the same; pages are [blocks, block_size, kv_heads, D]."""
        if batch is not self._batch:
            self._groups = group(batch, keys.shape[1])
            self._batch = batch
        out = torch.empty_like(query)
        for rows in self._groups:
            rows.attend(query, keys.flatten(0, 1), values.flatten(0, 1), out, scoring)
        return out


def fused(query: Tensor, keys: Tensor, values: Tensor, seen: Tensor, scoring: Scoring) -> Tensor:
    """Return torch's attention of queries [B, heads, N, D] to what they see [B, 1, N, L]."""
    if scoring.softcap or scoring.sinks is not None:
        return _scored(query, keys, values, seen, scoring)
    scale = scoring.scale or None
    return scaled_dot_product_attention(
        query, keys, values, attn_mask=seen, scale=scale, enable_gqa=True
    )


def _scored(query: Tensor, keys: Tensor, values: Tensor, seen: Tensor, scoring: Scoring) -> Tensor:
    """Return attention as torch's own does, with the caps and sinks that that one lacks."""
    group = query.shape[1] // keys.shape[1]
    tiles, values_of_tiles = (
        each.repeat_interleave(group, 1).float().split(KEYS_AT_ONCE, dim=2)
        for each in (keys, values)
    )
    scale = scoring.scale or query.shape[-1] ** -0.5
    scores = torch.cat([query.float() @ tile.mT for tile in tiles], dim=-1) * scale
    if scoring.softcap:
        scores = (scores / scoring.softcap).tanh() * scoring.softcap
    masked = scores.masked_fill(~seen, float("-inf"))
    weights = shares(masked, scoring.sinks).split(KEYS_AT_ONCE, dim=-1)
    parts = [part @ held for part, held in zip(weights, values_of_tiles, strict=True)]
    attended = parts[0]
    for part in parts[1:]:
        attended = attended + part
    return attended.to(query.dtype)


def group(batch: Batch, block_size: int) -> list[Group]:
    """Return the short rows together and each long row alone."""
    counts = batch.row_starts.diff()
    short = (counts <= SHORT_MAX).nonzero()[:, 0]
    long = (counts > SHORT_MAX).nonzero()
    return [_group(batch, rows, block_size) for rows in (short, *long) if len(rows)]


def _group(batch: Batch, rows: Tensor, block_size: int) -> Group:
    starts, lengths = batch.row_starts[rows, None].long(), batch.kv_lengths[rows, None].long()
    counts = batch.row_starts[rows + 1, None] - starts
    width = int(counts.max())
    size = -(-int(lengths.max()) // KEYS_MULTIPLE) * KEYS_MULTIPLE
    tokens, slots = (torch.arange(n, device=rows.device) for n in (width, size))
    real = tokens < counts
    queries = torch.where(real, starts + tokens, starts)
    own = slots - (lengths - counts)  # which new token of its row a key is; negative in the prefix
    seen = _seen(batch.ancestors[queries], torch.where(real, tokens, 0), own, slots < lengths)
    if batch.seen is not None:
        ends = slots < batch.seen[queries][..., None]
        seen = torch.where((batch.ancestors[queries] == -1)[..., None], ends, seen)
    blocks = (slots // block_size).clamp(max=batch.block_tables.shape[1] - 1)
    table = batch.block_tables[rows][:, blocks].long()
    centres = None
    if batch.both_ways:
        centres = torch.where(batch.ancestors[queries] == -1, batch.positions[queries], -1)
    return Group(queries, table * block_size + slots % block_size, seen[:, None], real, centres)


def _seen(ancestors: Tensor, tokens: Tensor, own: Tensor, valid: Tensor) -> Tensor:
    """Return [R, N, L]: the prefix, and ancestors [R, N] or causal order among the new tokens."""
    own, ancestors = own[:, None], ancestors[..., None]
    causal = own <= tokens[..., None]
    masked = (own < 0) | ((ancestors >> own.clamp(0, 63)) & 1 == 1)
    return torch.where(ancestors == -1, causal, masked) & valid[:, None]
