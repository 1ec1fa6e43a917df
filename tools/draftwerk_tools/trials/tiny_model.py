"""Small made-up models whose every weight is the same bits everywhere: no library draws them."""

import numpy as np
import torch
from torch import Tensor

from draftwerk.model.checkpoint.config import ModelConfig
from draftwerk.model.checkpoint.rope import rotary
from draftwerk.model.checkpoint.weights import LayerWeights, Weights

MULTIPLIERS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
INCREMENT = 0x9E3779B97F4A7C15
"""Constants of SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom generators")."""


def tiny_config(*, qwen: bool = False) -> ModelConfig:
    """Return an odd shape: no size is a multiple of a tile; Qwen's has norms of heads and YaRN."""
    scaling = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
    head_size = 24 if qwen else 16
    frequencies, magnitude = rotary(head_size, 10_000.0, scaling if qwen else {}, 512)
    return ModelConfig(
        architecture="Qwen3ForCausalLM" if qwen else "LlamaForCausalLM",
        vocab_size=203,
        hidden_size=72,
        layer_count=2,
        num_heads=6,
        num_kv_heads=2 if qwen else 3,
        head_size=head_size,
        ffn_size=88,
        context_max=512,
        norm_eps=1e-5,
        rope_inverse_frequencies=frequencies,
        rope_magnitude=magnitude,
        query_key_norm=qwen,
    )


def tiny_weights(config: ModelConfig) -> Weights:
    """Return bf16 weights that keep activations of ordinary size; with biases if it is Qwen's."""
    draws = iter(range(1, 2**31, 2**16))  # seeds that are far apart
    hidden, ffn = config.hidden_size, config.ffn_size
    attended = config.num_heads * config.head_size
    qkv = attended + 2 * config.num_kv_heads * config.head_size

    def matrix(rows: int, columns: int) -> Tensor:
        return uniform(next(draws), rows * columns, 2.0 / columns**0.5).view(rows, columns)

    def norm(size: int) -> Tensor:
        return (1 + uniform(next(draws), size, 0.25).float()).bfloat16()

    def bias(rows: int) -> Tensor | None:
        return uniform(next(draws), rows, 0.5) if config.query_key_norm else None

    def head_norm() -> Tensor | None:
        return norm(config.head_size) if config.query_key_norm else None

    def layer() -> LayerWeights:
        return LayerWeights(
            attention_norm=norm(hidden),
            qkv=matrix(qkv, hidden),
            qkv_bias=bias(qkv),
            query_norm=head_norm(),
            key_norm=head_norm(),
            output=matrix(hidden, attended),
            output_bias=bias(hidden),
            ffn_norm=norm(hidden),
            gate_up=matrix(2 * ffn, hidden),
            gate_up_bias=bias(2 * ffn),
            down=matrix(hidden, ffn),
            down_bias=bias(hidden),
        )

    return Weights(
        embedding=uniform(next(draws), config.vocab_size * hidden, 2.0).view(-1, hidden),
        layers=[layer() for _ in range(config.layer_count)],
        norm=norm(hidden),
        lm_head=matrix(config.vocab_size, hidden),
    )


def uniform(seed: int, count: int, spread: float) -> Tensor:
    """Return bf16 numbers in -spread .. spread: hashes of counters, scaled, rounded once."""
    words = (np.arange(count, dtype=np.uint64) + np.uint64(seed)) * np.uint64(INCREMENT)
    for shift, multiplier in zip((30, 27), MULTIPLIERS, strict=True):
        words = (words ^ words >> np.uint64(shift)) * np.uint64(multiplier)
    words ^= words >> np.uint64(31)
    centred = (words >> np.uint64(40)).astype(np.float64) * 2.0**-23 - 1.0
    return torch.from_numpy(centred * spread).float().bfloat16()
