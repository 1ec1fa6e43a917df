"""The one signature of attention, tree attention included: ancestor masks in the batch."""

from typing import NamedTuple, Protocol

from torch import Tensor

from draftwerk.model.batch.batch import Batch


class Scoring(NamedTuple):
    """The steps that scores go through; `PLAIN` is Llama's."""

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

    def __call__(self, query: Tensor, keys: Tensor, values: Tensor, batch: Batch, /) -> Tensor:
        """Map [T, heads, D] to the same; pages are [blocks, block_size, kv_heads, D]."""
        ...


def is_plain(scoring: Scoring) -> bool:
    """Return whether scores are Llama's."""
    return scoring.sinks is None and scoring == PLAIN


class ScoredAttention(Protocol):
    """Attention for every family."""

    def __call__(
        self, query: Tensor, keys: Tensor, values: Tensor, batch: Batch, scoring: Scoring = PLAIN, /
    ) -> Tensor:
        """Map [T, heads, D] to the same; pages are [blocks, block_size, kv_heads, D]."""
        ...


class PartialAttention(Protocol):
    """Attention that not every layer and round can take."""

    def serves(self, query: Tensor, batch: Batch, scoring: Scoring, /) -> bool:
        """Return whether it may be called with these."""
        ...

    def __call__(
        self, query: Tensor, keys: Tensor, values: Tensor, batch: Batch, scoring: Scoring = PLAIN, /
    ) -> Tensor:
        """Map [T, heads, D] to the same; pages are [blocks, block_size, kv_heads, D]."""
        ...


class WithFallback:
    """A backend where it serves, and another for all else."""

    def __init__(self, first: PartialAttention, fallback: ScoredAttention) -> None:
        self.first, self.fallback = first, fallback

    def __call__(
        self, query: Tensor, keys: Tensor, values: Tensor, batch: Batch, scoring: Scoring = PLAIN
    ) -> Tensor:
        """Map [T, heads, D] to the same; pages are [blocks, block_size, kv_heads, D]."""
        serves = self.first.serves(query, batch, scoring)
        backend = self.first if serves else self.fallback
        return backend(query, keys, values, batch, scoring)
