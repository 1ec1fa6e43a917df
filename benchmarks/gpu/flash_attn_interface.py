"""FlashAttention-3 from the shared object in vLLM's wheel, by the name and arguments of its own.

It lies beside this file. Of the package's `flash_attn_with_kvcache` it takes what a paged round of
rows of any lengths passes, and a page may have any size.
"""

from pathlib import Path

import torch
from torch import Tensor

torch.ops.load_library(str(Path(__file__).with_name("_vllm_fa3_C.abi3.so")))


def flash_attn_with_kvcache(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    *,
    cache_seqlens: Tensor,
    page_table: Tensor,
    cu_seqlens_q: Tensor,
    max_seqlen_q: int,
    causal: bool,
    num_splits: int = 0,
    softmax_scale: float | None = None,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
) -> Tensor:
    """Return the attention of q [T, heads, D]; pages are [blocks, block_size, kv_heads, D]."""
    # The operator's arguments by position, as its schema has them.
    new_keys = (None, None, None, None)
    starts = (cu_seqlens_q, None, None, None, cache_seqlens)
    longest = (max_seqlen_q, page_table.shape[1] * k_cache.shape[1])
    rotary_and_scales = (None, None, None, None, None, None, None, None)
    scale = q.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale
    packing = (True, None, num_splits, None, 0, None, 1, 0, None)
    out = torch.ops._vllm_fa3_C.fwd(
        *(q, k_cache, v_cache, *new_keys, *starts, *longest, page_table, *rotary_and_scales),
        *(scale, causal, *window_size, softcap, *packing),
    )
    return out[0]
