"""Attention in a few torch calls a layer: rows padded to one shape, then fused attention.

Verify rows are short and share one call; a prefill chunk has one of its own. Keys are padded to a
multiple of 512 and queries to at least two: CPU attention was measured to give a row the same bits
in any company only so. Where that is not promised, less padding is faster.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from draftwerk.model.attention.reference import shares
from draftwerk.model.attention.signature import PLAIN, Scoring
from draftwerk.model.batch.batch import Batch

SHORT_MAX = 16
"""New tokens up to which rows share a call."""
KEYS_MULTIPLE, KEYS_MULTIPLE_FAST = 512, 64
QUERIES_MIN, QUERIES_MIN_FAST = 2, 1


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

    def attend(
        self, query: Tensor, keys: Tensor, values: Tensor, out: Tensor, scoring: Scoring
    ) -> None:
        """Write the group's rows of `out` [T, heads, D]; keys, values [slots, kv_heads, D]."""
        seen = self.seen
        if scoring.window:
            seen = seen & (seen.flip(-1).cumsum(-1).flip(-1) <= scoring.window)
        rows = (
            query[self.queries].transpose(1, 2),
            keys[self.slots].transpose(1, 2),
            values[self.slots].transpose(1, 2),
        )
        if scoring.softcap or scoring.sinks is not None:
            attended = _scored(*rows, seen, scoring)
        else:
            scale = scoring.scale or None
            attended = scaled_dot_product_attention(
                *rows, attn_mask=seen, scale=scale, enable_gqa=True
            )
        out[self.queries[self.real]] = attended.transpose(1, 2)[self.real]


class PaddedAttention:
    """The backend; keeps the grouping of the latest batch, which is the same for every layer."""

    def __init__(self, *, fast: bool = False) -> None:
        self._fast = fast
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
            self._groups = group(batch, keys.shape[1], self._fast)
            self._batch = batch
        out = torch.empty_like(query)
        for rows in self._groups:
            rows.attend(query, keys.flatten(0, 1), values.flatten(0, 1), out, scoring)
        return out


def _scored(query: Tensor, keys: Tensor, values: Tensor, seen: Tensor, scoring: Scoring) -> Tensor:
    """Return attention as torch's own does, with the caps and sinks that that one lacks."""
    group = query.shape[1] // keys.shape[1]
    keys, values = (each.repeat_interleave(group, 1).float() for each in (keys, values))
    scores = query.float() @ keys.mT * (scoring.scale or query.shape[-1] ** -0.5)
    if scoring.softcap:
        scores = (scores / scoring.softcap).tanh() * scoring.softcap
    masked = scores.masked_fill(~seen, float("-inf"))
    return (shares(masked, scoring.sinks) @ values).to(query.dtype)


def group(batch: Batch, block_size: int, fast: bool = False) -> list[Group]:
    """Return the short rows together and each long row alone."""
    counts = batch.row_starts.diff()
    short = (counts <= SHORT_MAX).nonzero()[:, 0]
    long = (counts > SHORT_MAX).nonzero()
    return [_group(batch, rows, block_size, fast) for rows in (short, *long) if len(rows)]


def _group(batch: Batch, rows: Tensor, block_size: int, fast: bool) -> Group:
    starts, lengths = batch.row_starts[rows, None].long(), batch.kv_lengths[rows, None].long()
    counts = batch.row_starts[rows + 1, None] - starts
    width = max(QUERIES_MIN_FAST if fast else QUERIES_MIN, int(counts.max()))
    multiple = KEYS_MULTIPLE_FAST if fast else KEYS_MULTIPLE
    size = -(-int(lengths.max()) // multiple) * multiple
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
    return Group(queries, table * block_size + slots % block_size, seen[:, None], real)


def _seen(ancestors: Tensor, tokens: Tensor, own: Tensor, valid: Tensor) -> Tensor:
    """Return [R, N, L]: the prefix, and ancestors [R, N] or causal order among the new tokens."""
    own, ancestors = own[:, None], ancestors[..., None]
    causal = own <= tokens[..., None]
    masked = (own < 0) | ((ancestors >> own.clamp(0, 63)) & 1 == 1)
    return torch.where(ancestors == -1, causal, masked) & valid[:, None]
