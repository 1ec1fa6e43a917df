"""The tensors of a Llama-family model, with query, key and value fused, and gate and up fused."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(slots=True)
class LayerWeights:
    """One decoder layer; matrices are [out, in] as in `torch.nn.functional.linear`."""

    attention_norm: Tensor
    qkv: Tensor
    """[(heads + 2 * kv_heads) * head_size, hidden]: all query rows, then key, then value."""
    qkv_bias: Tensor | None
    query_norm: Tensor | None
    """[head_size], Qwen3's per-head norm, applied before rope."""
    key_norm: Tensor | None
    output: Tensor
    output_bias: Tensor | None
    ffn_norm: Tensor
    gate_up: Tensor
    """[2 * ffn, hidden]: all gate rows, then all up rows."""
    gate_up_bias: Tensor | None
    down: Tensor
    down_bias: Tensor | None


@dataclass(slots=True)
class Weights:
    """A whole model; `lm_head` is the same tensor as `embedding` when they are tied."""

    embedding: Tensor
    layers: list[LayerWeights]
    norm: Tensor
    lm_head: Tensor
