"""The one signature of attention, tree attention included: ancestor masks in the batch."""

from typing import Protocol

from torch import Tensor

from draftwerk.model.batch.batch import Batch


class Attention(Protocol):
    """flash-attn's paged varlen form: every new token of a batch over one layer's pages."""

    def __call__(self, query: Tensor, keys: Tensor, values: Tensor, batch: Batch) -> Tensor:
        """Map [T, heads, D] to the same; pages are [blocks, block_size, kv_heads, D]."""
        ...
