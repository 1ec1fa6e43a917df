"""The shape of a Llama-family model, read from its Hugging Face config."""

import msgspec


class ModelConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that `forward` needs besides the weights; sizes are counts of elements."""

    architecture: str
    vocab_size: int
    hidden_size: int
    layer_count: int
    num_heads: int
    num_kv_heads: int
    head_size: int
    ffn_size: int
    context_max: int
    norm_eps: float
    rope_inverse_frequencies: tuple[float, ...]
    """One per pair of head dimensions, `rope_scaling` already applied."""
    rope_magnitude: float = 1.0
    """Factor on cos and sin (YaRN's attention factor)."""
    tied_embeddings: bool = False
    query_key_norm: bool = False
    eos_token_ids: tuple[int, ...] = ()
