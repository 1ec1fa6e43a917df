"""An EAGLE-3 head's layer as a draft head's: norms and attention in torch, products as given."""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor
from torch.nn.functional import rms_norm, silu

from draftwerk.model.batch.batch import Batch, Pages
from draftwerk.model.batch.option_forwards import KeepingForward
from draftwerk.model.reference.rotation import Rotaries

RowProduct = Callable[[Tensor], Tensor]
"""Contiguous float32 rows times a matrix, as float32."""


class KeptStates:
    """What a target keeps before some of its layers, as the states that a draft head reads."""

    def __init__(self, forward: KeepingForward, layers: tuple[int, ...]) -> None:
        self._forward = forward
        forward.kept_layers = layers

    @property
    def states(self) -> Tensor | None:
        """The states of the latest call's outputs, side by side [S, layers * hidden]."""
        return self._forward.kept


class EagleLayer:
    """A `HeadLayer`; the target's states are those before three layers, its own as wide as one."""

    def __init__(
        self,
        products: Mapping[str, RowProduct],
        norms: Mapping[str, Tensor],
        vocabulary: Tensor,
        embed: Callable[[Sequence[int]], Tensor],
        rotaries: Rotaries,
        attention: Callable[[Tensor, Tensor, Tensor, Batch], Tensor],
        *,
        epsilon: float,
        norms_residual: bool,
    ) -> None:
        """Products and norms have the names of `EagleHead`; `embed` returns float32 embeddings.

        `attention` has the signature of the one in torch.
        """
        self.vocabulary: list[int] = vocabulary.tolist()
        self._products, self._norms, self._embed = products, norms, embed
        self._rotaries, self._attention = rotaries, attention
        self._epsilon, self._norms_residual = epsilon, norms_residual

    def __call__(
        self, batch: Batch, pages: Pages, states: Tensor, tokens: Sequence[int]
    ) -> tuple[Tensor, Tensor]:
        """Return float32 logits and states [S, hidden] of the batch's outputs."""
        hidden, times = states.float(), self._products
        if hidden.shape[-1] != len(self._norms["norm"]):
            hidden = times["fc"](hidden)
        said = self._normed(self._embed(tokens), "input_layernorm")
        before = self._normed(hidden, "hidden_norm")
        attended = self._attend(torch.cat([said, before], -1), batch, pages)[batch.outputs]
        residual = before if self._norms_residual else hidden
        mixed = residual[batch.outputs] + times["output"](attended)
        gate, up = times["gate_up"](self._normed(mixed, "post_attention_layernorm")).chunk(2, -1)
        mixed = mixed + times["down"](silu(gate) * up)
        return times["lm_head"](self._normed(mixed, "norm")), mixed

    def _attend(self, read: Tensor, batch: Batch, pages: Pages) -> Tensor:
        """Return what each token comes to [T, heads * D]; keys and values are in the pages."""
        keys, values = pages.keys[0], pages.values[0]
        kv_heads, size = keys.shape[2:]
        by_head = self._products["qkv"](read).unflatten(1, (-1, size))
        query, key, value = by_head.split([by_head.shape[1] - 2 * kv_heads, kv_heads, kv_heads], 1)
        (rotation,) = self._rotaries.at(batch.positions, torch.float32)
        keys.flatten(0, 1)[batch.slots] = self._rotaries.rotated(key, rotation).to(keys.dtype)
        values.flatten(0, 1)[batch.slots] = value.to(values.dtype)
        query = self._rotaries.rotated(query, rotation)
        return self._attention(query, keys, values, batch).flatten(1)

    def _normed(self, values: Tensor, name: str) -> Tensor:
        return rms_norm(values, values.shape[-1:], self._norms[name], self._epsilon)
