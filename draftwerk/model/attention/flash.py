"""FlashAttention 2 and 3 behind our signature; neither takes tree masks.

Rows of one length, as verify rounds have, go through `flash_attn_with_kvcache`, which splits the
keys among processors for any number of new tokens. FlashAttention-2's varlen form does not, so only
rounds with rows of several lengths (prefill chunks among them) use it.
"""

import re
from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from draftwerk.model.attention.signature import PLAIN, Scoring
from draftwerk.model.batch.batch import Batch, facts_of
from draftwerk.model.checkpoint.unsupported import Refused

Function = Callable[..., Tensor]
QUEUED_MAX = (2, 8, 3)
"""The last release whose `flash_attn_with_kvcache` can be recorded: the next reads the longest
row's length back from the device, to check it."""
DTYPES = (torch.bfloat16, torch.float16)
HEAD_MAX = 256


class Served:
    """Chains, with windows, caps and scales; neither release knows trees or sinks."""

    def serves(self, query: Tensor, batch: Batch, scoring: Scoring) -> bool:
        """Return whether they may be called with these."""
        size = query.shape[-1]
        fits = size % 8 == 0 and size <= HEAD_MAX
        is_causal = batch.seen is None and not facts_of(batch).masked
        return fits and scoring.sinks is None and is_causal


class FlashAttention2(Served):
    """The backend `flash_attn`: pages of a multiple of 256 slots, safe to record in a graph."""

    def __init__(self, with_kvcache: Function | None, varlen: Function) -> None:
        """`flash_attn_with_kvcache` and `flash_attn_varlen_func` of the package flash-attn.

        Without the first all rounds take the second.
        """
        self.with_kvcache = with_kvcache
        self.varlen = varlen

    def __call__(
        self, query: Tensor, keys: Tensor, values: Tensor, batch: Batch, scoring: Scoring = PLAIN
    ) -> Tensor:
        """Map [T, heads, D] to the same; pages are [blocks, block_size, kv_heads, D]."""
        facts = facts_of(batch)
        _refuse_trees(facts.masked)
        row_count = len(batch.kv_lengths)
        if self.with_kvcache is not None and len(query) == row_count * facts.row_max:
            by_row = query.view(row_count, facts.row_max, *query.shape[1:])
            return self.with_kvcache(
                by_row,
                keys,
                values,
                cache_seqlens=batch.kv_lengths,
                block_table=batch.block_tables,
                causal=True,
                **_scores(scoring),
            ).flatten(0, 1)
        return self.varlen(
            query,
            keys,
            values,
            cu_seqlens_q=batch.row_starts,
            cu_seqlens_k=_starts(batch.kv_lengths),
            max_seqlen_q=facts.row_max,
            max_seqlen_k=facts.kv_max,
            causal=True,
            block_table=batch.block_tables,
            **_scores(scoring),
        )


class FlashAttention3(Served):
    """The backend `flash_attn_3`: any page size, one call for every kind of round."""

    def __init__(self, with_kvcache: Function) -> None:
        """`flash_attn_with_kvcache` of FlashAttention's `hopper` build."""
        self.with_kvcache = with_kvcache

    def __call__(
        self, query: Tensor, keys: Tensor, values: Tensor, batch: Batch, scoring: Scoring = PLAIN
    ) -> Tensor:
        """Map [T, heads, D] to the same; pages are [blocks, block_size, kv_heads, D]."""
        facts = facts_of(batch)
        _refuse_trees(facts.masked)
        return self.with_kvcache(
            query,
            keys,
            values,
            cache_seqlens=batch.kv_lengths,
            page_table=batch.block_tables,
            cu_seqlens_q=batch.row_starts,
            max_seqlen_q=facts.row_max,
            causal=True,
            **_scores(scoring),
        )


def flash_attention_2() -> FlashAttention2:
    """Return the backend of the installed package. Raises Refused."""
    module = _installed("flash_attn", "flash_attn", "pip install flash-attn")
    release = re.match(r"(\d+)\.(\d+)\.(\d+)", getattr(module, "__version__", ""))
    varlen = getattr(module, "flash_attn_varlen_func", None)
    if release is None or varlen is None:
        raise Refused("attention flash_attn: a package of that name is there, and not the library")
    queues = tuple(map(int, release.groups())) <= QUEUED_MAX
    with_kvcache = module.flash_attn_with_kvcache if queues else None
    return FlashAttention2(with_kvcache, varlen)


def flash_attention_3() -> FlashAttention3:
    """Return the backend of the installed module. Raises Refused."""
    module = _installed("flash_attn_3", "flash_attn_interface", "build FlashAttention's hopper/")
    return FlashAttention3(module.flash_attn_with_kvcache)


def _installed(backend: str, name: str, remedy: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise Refused(f"attention {backend}: {error} ({remedy})") from error


def _scores(scoring: Scoring) -> dict[str, Any]:
    """Return the libraries' names for what is not Llama's; a window counts the own position."""
    named = {"softmax_scale": scoring.scale, "softcap": scoring.softcap}
    windows = {"window_size": (scoring.window - 1, 0)} if scoring.window else {}
    return {name: value for name, value in named.items() if value} | windows


def _refuse_trees(masked: bool) -> None:
    if masked:
        raise Refused("FlashAttention knows no trees of drafts; --attention triton does")


def _starts(lengths: Tensor) -> Tensor:
    """Return where each row's keys would begin, were they laid end to end: int32 [R + 1]."""
    starts = lengths.new_zeros(len(lengths) + 1)
    starts[1:] = lengths.cumsum(0)
    return starts
