"""Attention in plain torch, one row after another: the twin of every other backend."""

import torch
from torch import Tensor

from draftwerk.model.attention.signature import PLAIN, Scoring
from draftwerk.model.batch.batch import Batch
from draftwerk.model.batch.e4m3 import read


def attend(
    query: Tensor, keys: Tensor, values: Tensor, batch: Batch, scoring: Scoring = PLAIN
) -> Tensor:
    """Return softmax(q k^T / sqrt(D)) v of every new token over what it may see.

    query [T, heads, D]; keys and values are one layer's pages [blocks, block_size, kv_heads, D],
    the new tokens' own included. Returns [T, heads, D] in the query's dtype; computes in float32.
    """
    out = torch.empty_like(query)
    bounds = batch.row_starts.tolist()
    for row, length in enumerate(batch.kv_lengths.tolist()):
        begin, end = bounds[row], bounds[row + 1]
        block_count = -(-length // keys.shape[1])
        blocks = batch.block_tables[row, :block_count].long()
        seen = _visible(batch.ancestors[begin:end], length)
        if batch.seen is not None:
            ends = torch.arange(length, device=seen.device) < batch.seen[begin:end, None]
            seen = torch.where(batch.ancestors[begin:end, None] == -1, ends, seen)
        if scoring.window:
            within = seen.flip(1).cumsum(1).flip(1) <= scoring.window
            if batch.both_ways:
                places = torch.arange(length, device=seen.device)
                near = (places - batch.positions[begin:end, None]).abs() < scoring.window
                within = torch.where(batch.ancestors[begin:end, None] == -1, near, within)
            seen &= within
        out[begin:end] = attend_row(
            query[begin:end].float(),
            read(keys, blocks, torch.float32).flatten(0, 1)[:length],
            read(values, blocks, torch.float32).flatten(0, 1)[:length],
            seen,
            scoring,
        )
    return out


def _visible(ancestors: Tensor, length: int) -> Tensor:
    """Return [new tokens, length] booleans: the whole prefix, then ancestors or causal order."""
    count = len(ancestors)
    tokens = torch.arange(count, device=ancestors.device)
    causal = tokens <= tokens[:, None]
    # Bits past 63 belong to rows that are causal anyway.
    masked = (ancestors[:, None] >> tokens.clamp(max=63)) & 1 == 1
    own = torch.where(ancestors[:, None] == -1, causal, masked)
    prefix = own.new_ones(count, length - count)
    return torch.cat([prefix, own], dim=1)


def shares(scores: Tensor, sinks: Tensor | None) -> Tensor:
    """Return what each key has of the whole, of scores [..., heads, n, length]."""
    if sinks is None:
        return scores.softmax(dim=-1)
    more = sinks.float()[:, None, None].expand(*scores.shape[:-1], 1)
    return torch.cat([scores, more], dim=-1).softmax(dim=-1)[..., :-1]


def attend_row(
    query: Tensor, keys: Tensor, values: Tensor, seen: Tensor, scoring: Scoring = PLAIN
) -> Tensor:
    """Attend for one row: query [n, heads, D], keys and values [length, kv_heads, D]."""
    count, heads, size = query.shape
    kv_heads = keys.shape[1]
    grouped = query.view(count, kv_heads, heads // kv_heads, size)
    scores = torch.einsum("nkgd,lkd->kgnl", grouped, keys) * (scoring.scale or size**-0.5)
    if scoring.softcap:
        scores = (scores / scoring.softcap).tanh() * scoring.softcap
    masked = scores.masked_fill(~seen, float("-inf")).flatten(0, 1)
    weights = shares(masked, scoring.sinks).view_as(scores)
    return torch.einsum("kgnl,lkd->nkgd", weights, values).reshape(count, heads, size)
