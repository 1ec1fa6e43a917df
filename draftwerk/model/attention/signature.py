"""The one signature of attention, tree attention included: ancestor masks in the batch."""

from typing import NamedTuple, Protocol

from torch import Tensor

from draftwerk.model.batch.batch import Batch


class Scoring(NamedTuple):
    """What becomes of scores; `PLAIN` is Llama's."""

    scale: float = 0.0
    """0 for 1 / sqrt(D)."""
    softcap: float = 0.0
    """Scores become c tanh(x / c); 0 for none."""
    window: int = 0
    """Positions that a token sees at most, itself included; 0 for all."""
    sinks: Tensor | None = None
    """[heads], of each one more score, which has no value and no scale."""


PLAIN = Scoring()


class Attention(Protocol):
    """flash-attn's paged varlen form: every new token of a batch over one layer's pages."""

    def __call__(self, query: Tensor, keys: Tensor, values: Tensor, batch: Batch) -> Tensor:
        """Map [T, heads, D] to the same; pages are [blocks, block_size, kv_heads, D]."""
        ...


class ScoredAttention(Protocol):
    """Attention for every family."""

    def __call__(
        self, query: Tensor, keys: Tensor, values: Tensor, batch: Batch, scoring: Scoring, /
    ) -> Tensor:
        """Map [T, heads, D] to the same; pages are [blocks, block_size, kv_heads, D]."""
        ...
