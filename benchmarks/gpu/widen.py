"""The same function at a larger model's cost: real text and real acceptance without a large model.

A small Llama's weights are placed inside a larger one's shape. Hidden lanes beyond the small
model's stay zero; rotary pair i moves to pair i * D / d, whose frequency is the same; the norms and
the softmax keep their scale. What is added computes on random numbers, since zeros would flatter a
device, but is multiplied by zero before it could be seen.
"""

from math import sqrt

import msgspec
import torch
from torch import Tensor

from draftwerk.model.checkpoint.config import ModelConfig
from draftwerk.model.checkpoint.weights import LayerWeights, Weights

FILL = 0.02
"""Standard deviation of the numbers that are computed with and not seen."""


def widened_config(small: ModelConfig, **sizes: int) -> ModelConfig:
    """Return the larger shape; `sizes` are those of ModelConfig that grow."""
    large = msgspec.structs.replace(small, **sizes, tied_embeddings=False)
    step = large.head_size // small.head_size
    group, wide_group = (c.num_heads // c.num_kv_heads for c in (small, large))
    if large.head_size % small.head_size or wide_group < group:
        raise ValueError("head_size must be a multiple, and no KV head may lose query heads")
    frequencies = [1.0] * (large.head_size // 2)
    frequencies[::step] = small.rope_inverse_frequencies
    return msgspec.structs.replace(
        large,
        rope_inverse_frequencies=tuple(frequencies),
        norm_eps=small.norm_eps * small.hidden_size / large.hidden_size,
    )


class Widener:
    """Makes the larger model's tensors on a device, one layer at a time."""

    def __init__(
        self, small: ModelConfig, large: ModelConfig, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.small = small
        self.large = large
        self.factory = {"dtype": dtype, "device": device}
        half = torch.arange(small.head_size // 2) * (large.head_size // small.head_size)
        self.lanes = torch.cat([half, half + large.head_size // 2])
        group, wide_group = (c.num_heads // c.num_kv_heads for c in (small, large))
        heads = torch.arange(small.num_heads)
        self.heads = heads // group * wide_group + heads % group
        self.kv_heads = torch.arange(small.num_kv_heads)

    def weights(self, weights: Weights) -> Weights:
        """Return the larger model; layers beyond the small one's add nothing."""
        small, large = self.small, self.large
        layers = [self._layer(layer) for layer in weights.layers]
        layers += [self._idle(weights.norm) for _ in range(large.layer_count - small.layer_count)]
        embedding = torch.zeros(small.vocab_size, large.hidden_size, **self.factory)
        head = torch.zeros_like(embedding)
        embedding[:, : small.hidden_size] = weights.embedding
        head[:, : small.hidden_size] = weights.lm_head
        return Weights(embedding, layers, self._norm(weights.norm), head)

    def _layer(self, layer: LayerWeights) -> LayerWeights:
        if layer.query_norm is not None or layer.qkv_bias is not None:
            raise ValueError("only models without biases and head norms can be widened")
        small, large = self.small, self.large
        hidden, ffn = small.hidden_size, small.ffn_size
        sizes = [small.num_heads, small.num_kv_heads, small.num_kv_heads]
        parts = layer.qkv.split([count * small.head_size for count in sizes])
        scale = sqrt(large.head_size / small.head_size)
        query = self._heads(parts[0].float() * scale, self.heads, large.num_heads)
        key = self._heads(parts[1], self.kv_heads, large.num_kv_heads)
        value = self._heads(parts[2], self.kv_heads, large.num_kv_heads)
        output = torch.zeros(large.hidden_size, large.num_heads * large.head_size, **self.factory)
        output[:hidden, self._rows(self.heads)] = layer.output.to(output)
        gate_up = self._random(2 * large.ffn_size, large.hidden_size)
        gate, up = layer.dense[0].split(ffn)
        gate_up[:ffn, :hidden] = gate
        gate_up[large.ffn_size : large.ffn_size + ffn, :hidden] = up
        down = torch.zeros(large.hidden_size, large.ffn_size, **self.factory)
        down[:hidden, :ffn] = layer.dense[1]
        return LayerWeights(
            attention_norm=self._norm(layer.attention_norm),
            qkv=torch.cat([query, key, value]),
            output=output,
            ffn_norm=self._norm(layer.ffn_norm),
            gate_up=gate_up,
            down=down,
        )

    def _idle(self, norm: Tensor) -> LayerWeights:
        large = self.large
        heads = large.num_heads + 2 * large.num_kv_heads
        attended = large.num_heads * large.head_size
        return LayerWeights(
            attention_norm=self._norm(norm),
            qkv=self._random(heads * large.head_size, large.hidden_size),
            output=torch.zeros(large.hidden_size, attended, **self.factory),
            ffn_norm=self._norm(norm),
            gate_up=self._random(2 * large.ffn_size, large.hidden_size),
            down=torch.zeros(large.hidden_size, large.ffn_size, **self.factory),
        )

    def _heads(self, rows: Tensor, heads: Tensor, count: int) -> Tensor:
        """Return [count * D, hidden]: live heads with their own lanes, dead ones random."""
        size = self.large.head_size
        wide = self._random(count * size, self.large.hidden_size)
        wide.view(count, size, -1)[heads] = 0.0  # dimensions that a live head does not use
        wide[self._rows(heads), : self.small.hidden_size] = rows.to(wide)
        return wide

    def _rows(self, heads: Tensor) -> Tensor:
        return (heads[:, None] * self.large.head_size + self.lanes).flatten()

    def _norm(self, weight: Tensor | None) -> Tensor:
        assert weight is not None
        small, large = self.small.hidden_size, self.large.hidden_size
        wide = torch.zeros(large, **self.factory)
        wide[:small] = weight.float() * sqrt(small / large)
        return wide

    def _random(self, *shape: int) -> Tensor:
        return torch.empty(shape, **self.factory).normal_(0.0, FILL)
