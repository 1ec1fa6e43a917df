"""The decoder of the Llama family in plain torch, over one flattened round.

It is the twin the fast kernels are compared with, and what runs where they cannot.
"""

from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import linear, pad, silu

from draftwerk.model.attention.padded import PaddedAttention
from draftwerk.model.attention.signature import Attention
from draftwerk.model.batch.batch import Batch, Pages
from draftwerk.model.checkpoint.config import ModelConfig
from draftwerk.model.checkpoint.shard import Shard, whole
from draftwerk.model.checkpoint.weights import LayerWeights, Weights

TILE = 32
"""Rows of every product on a CPU, so that a row's bits depend less on how many others there are.

The most up to which oneDNN's bf16 products were measured to be row-invariant.
"""
WIDE_SHARE = 0.25
"""Of the machine's memory, that copies of the matrices in float32 may take."""


class GatherColumns(Protocol):
    """Returns all columns of [T, own columns]; the kind is attended, hidden, ffn or vocab."""

    def __call__(self, own: Tensor, kind: str, /) -> Tensor: ...


def all_mine(own: Tensor, kind: str) -> Tensor:
    """Return the columns of a model that is not divided."""
    return own


class TorchForward:
    """A `Forward` in the numerics of Transformers: norms in float32, the rest in `dtype`."""

    def __init__(
        self,
        config: ModelConfig,
        weights: Weights,
        attention: Attention,
        shard: Shard | None = None,
        gather: GatherColumns = all_mine,
    ) -> None:
        """Of a `shard` the weights are those that a rank has, and pages those of its layers."""
        self.config = config
        self.shard = shard or whole(config)
        self.gather = gather
        self.weights = weights
        self.attention = attention
        self.states: Tensor | None = None
        """What the head read in the latest call, [S, hidden] in any dtype."""
        # A GPU has kernels for every height, and is asked for exactness elsewhere.
        self.tile = TILE if weights.embedding.device.type == "cpu" else 0
        self.wide: dict[int, Tensor] = {}
        """Matrices in float32 by the identity of their bf16 ones: for steps of several tokens."""
        self.frequencies = torch.tensor(
            config.rope_inverse_frequencies, device=weights.embedding.device
        )

    def __call__(self, batch: Batch, pages: Pages) -> Tensor:
        """Write the batch's K and V into the pages, return float32 logits [S, vocab]."""
        return self.run_stage(batch, pages, None)

    @torch.inference_mode()
    def run_stage(self, batch: Batch, pages: Pages, hidden: Tensor | None) -> Tensor:
        """Return the logits, or before the last stage what the layers have come to [T, hidden].

        `hidden` is what the stage before has come to; without one the tokens are embedded.
        """
        rotation = self._rotation(batch.positions)
        if hidden is None:
            hidden = self.weights.embedding[batch.tokens]
        layers = self.weights.layers[: batch.layers]
        # Before the last stage every layer has all tokens: a later one goes on with them.
        every = len(layers) - self.shard.is_last
        for index, layer in enumerate(layers[:every]):
            normed = self._norm(hidden, layer.attention_norm)
            hidden = hidden + self._attend(layer, index, normed, rotation, batch, pages)
            hidden = hidden + self._feed(layer, self._norm(hidden, layer.ffn_norm))
        if not self.shard.is_last:
            return hidden
        hidden = self._last(layers[every], every, hidden, rotation, batch, pages)
        self.states = self._norm(hidden, self.weights.norm)
        return self.gather(self._linear(self.states, self.weights.lm_head, None), "vocab").float()

    def _last(
        self,
        layer: LayerWeights,
        index: int,
        hidden: Tensor,
        rotation: tuple[Tensor, Tensor],
        batch: Batch,
        pages: Pages,
    ) -> Tensor:
        """Run the last layer: keys and values of all tokens, the rest of those with logits [S].

        Nothing reads what the others would come to.
        """
        normed = self._norm(hidden, layer.attention_norm)
        query = self._store(layer, index, normed, rotation, batch, pages)
        if not len(batch.outputs):
            return hidden[:0]
        attended = self.attention(query, *self._pages_of(index, pages), batch)
        hidden = hidden[batch.outputs]
        hidden = hidden + self._project(layer, attended[batch.outputs])
        return hidden + self._feed(layer, self._norm(hidden, layer.ffn_norm))

    def _rotation(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Return cos and sin [T, 1, head_size / 2], in the weights' dtype."""
        angles = (positions[:, None].float() * self.frequencies)[:, None]
        magnitude, dtype = self.config.rope_magnitude, self.weights.embedding.dtype
        return (angles.cos() * magnitude).to(dtype), (angles.sin() * magnitude).to(dtype)

    def _norm(self, values: Tensor, weight: Tensor) -> Tensor:
        wide = values.float()
        scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.config.norm_eps)
        return weight * (wide * scale).to(values.dtype)

    def _attend(
        self,
        layer: LayerWeights,
        index: int,
        normed: Tensor,
        rotation: tuple[Tensor, Tensor],
        batch: Batch,
        pages: Pages,
    ) -> Tensor:
        query = self._store(layer, index, normed, rotation, batch, pages)
        attended = self.attention(query, *self._pages_of(index, pages), batch)
        return self._project(layer, attended)

    def _pages_of(self, index: int, pages: Pages) -> tuple[Tensor, Tensor]:
        """Return a layer's keys and values, of this rank's heads."""
        own = self.shard.kv_heads
        keys, values = pages.keys[index], pages.values[index]
        return keys[:, :, own.start : own.stop], values[:, :, own.start : own.stop]

    def _store(
        self,
        layer: LayerWeights,
        index: int,
        normed: Tensor,
        rotation: tuple[Tensor, Tensor],
        batch: Batch,
        pages: Pages,
    ) -> Tensor:
        """Write keys and values into the pages; return the rotated queries [T, heads, D]."""
        heads, kv_heads = len(self.shard.heads), len(self.shard.kv_heads)
        qkv = self._linear(normed, layer.qkv, layer.qkv_bias)
        by_head = qkv.view(len(qkv), heads + 2 * kv_heads, self.config.head_size)
        query, key, value = by_head.split([heads, kv_heads, kv_heads], dim=1)
        if layer.query_norm is not None and layer.key_norm is not None:
            query, key = self._norm(query, layer.query_norm), self._norm(key, layer.key_norm)
        keys, values = self._pages_of(index, pages)
        keys.view(-1, *keys.shape[2:])[batch.slots] = rotated(key, rotation)
        values.view(-1, *values.shape[2:])[batch.slots] = value
        return rotated(query, rotation)

    def _project(self, layer: LayerWeights, attended: Tensor) -> Tensor:
        attended = self.gather(attended.flatten(1), "attended")
        return self.gather(self._linear(attended, layer.output, layer.output_bias), "hidden")

    def _feed(self, layer: LayerWeights, normed: Tensor) -> Tensor:
        gate, up = self._linear(normed, layer.gate_up, layer.gate_up_bias).chunk(2, dim=-1)
        gated = self.gather(silu(gate) * up, "ffn")
        return self.gather(self._linear(gated, layer.down, layer.down_bias), "hidden")

    def _untiled(self, values: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        wide = self.wide.get(id(weight)) if len(values) > 1 else None
        if wide is None:
            return linear(values, weight, bias)
        return linear(values.float(), wide, bias if bias is None else bias.float()).to(values.dtype)

    def _linear(self, values: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        if not self.tile:
            return self._untiled(values, weight, bias)
        if not len(values):
            return values.new_empty(0, len(weight))
        padded = pad(values, (0, 0, 0, -len(values) % self.tile))
        parts = [linear(tile, weight, bias) for tile in padded.split(self.tile)]
        return (parts[0] if len(parts) == 1 else torch.cat(parts))[: len(values)]


def prefer_speed(forward: TorchForward, memory_bytes: int) -> None:
    """Give up equal bits in batches of unlike size for speed, on a CPU.

    Without AVX-512, torch's bf16 products are fast for one row only: 16 rows take 2.6 times as long
    as in float32. Where there is memory, matrices are therefore kept in float32 as well.
    """
    if forward.tile:
        forward.tile = 0
        if isinstance(forward.attention, PaddedAttention):
            forward.attention = PaddedAttention(fast=True)
        weights = forward.weights
        matrices = [weights.lm_head]
        for layer in weights.layers:
            matrices += [layer.qkv, layer.output, layer.gate_up, layer.down]
        size = sum(4 * matrix.numel() for matrix in matrices)
        if weights.lm_head.dtype == torch.bfloat16 and size < memory_bytes * WIDE_SHARE:
            forward.wide = {id(matrix): matrix.float() for matrix in matrices}


def rotated(values: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
    """Rotate dimension i with dimension i + D / 2 of [T, heads, D]."""
    cos, sin = rotation
    first, second = values.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
