"""The fused operations of a decoder layer, whose twins in plain torch are with the tests."""

from typing import NamedTuple, Protocol

from torch import Tensor


class HeadNorms(NamedTuple):
    """Qwen3's norms of every query and key head, before rotation."""

    query: Tensor
    """[D]."""
    key: Tensor
    eps: float


class AddNorm(Protocol):
    """Add `delta` to `residual` [T, hidden] in place, if there is one; return its RMS norm."""

    def __call__(
        self, residual: Tensor, delta: Tensor | None, weight: Tensor, eps: float, /
    ) -> Tensor: ...


class RotateAndStore(Protocol):
    """Write K and V of qkv [T, all heads * D] into one layer's pages, return Q [T, heads, D].

    `rotation` is cos and sin, float32 [T, D / 2]; a token whose slot is -1 is padding and is
    written nowhere.
    """

    def __call__(
        self,
        qkv: Tensor,
        rotation: tuple[Tensor, Tensor],
        slots: Tensor,
        norms: HeadNorms | None,
        keys: Tensor,
        values: Tensor,
        /,
    ) -> Tensor: ...


class SiluMul(Protocol):
    """Map [T, 2 * ffn], gate before up, to silu(gate) * up [T, ffn]."""

    def __call__(self, gate_up: Tensor, /) -> Tensor: ...


class Ops(NamedTuple):
    """The operations of a layer besides matrix products and attention."""

    add_norm: AddNorm
    rotate_and_store: RotateAndStore
    silu_mul: SiluMul
