"""Sizes and switches of the hybrid families, drawn at random: what no list of cases thinks of."""

from collections.abc import Sequence
from random import Random
from typing import Any

COMMON: dict[str, Sequence[Any]] = {
    **{"hidden_size": (24, 32, 40, 64), "intermediate_size": (16, 40, 72)},
    **{"num_key_value_heads": (1, 2, 4), "tie_word_embeddings": (False, True)},
}
EXPERTS = {"num_experts": (4, 7, 12), "num_experts_per_tok": (1, 3, 4)}
SMALL = {"moe_intermediate_size": (8, 24, 40)}
CONVOLUTION: dict[str, Sequence[Any]] = {
    **COMMON,
    **{"conv_L_cache": range(1, 9), "conv_bias": (False, True)},
}
DELTA: dict[str, Sequence[Any]] = {
    **COMMON,
    **{"head_dim": (8, 16, 24), "attention_bias": (False, True)},
    **{"linear_num_key_heads": (1, 2, 3), "linear_num_value_heads": (6, 12)},
    **{"linear_key_head_dim": (4, 12, 20), "linear_value_head_dim": (4, 16, 40)},
    "linear_conv_kernel_dim": (1, 2, 3, 5, 8),
    "rope_parameters": [
        {"rope_type": "default", "rope_theta": theta, "partial_rotary_factor": share}
        for theta in (500.0, 1e6)
        for share in (0.25, 0.5, 1.0)
    ],
}
SHARED = {**EXPERTS, **SMALL, "shared_expert_intermediate_size": (8, 24, 40)}
CHOICES: dict[str, dict[str, Any]] = {
    "lfm2": CONVOLUTION | {"block_auto_adjust_ff_dim": (False, True), "block_multiple_of": (8, 16)},
    "lfm2_moe": {
        **CONVOLUTION,
        **EXPERTS,
        **SMALL,
        **{"num_dense_layers": (0, 1, 2), "routed_scaling_factor": (0.7, 1.0, 2.5)},
        **{"norm_topk_prob": (False, True), "use_expert_bias": (False, True)},
    },
    "qwen3_5_text": DELTA,
    "qwen3_5_moe_text": {**DELTA, **SHARED},
    "qwen3_next": {
        **{**DELTA, **SHARED, "norm_topk_prob": (False, True)},
        **{"decoder_sparse_step": (1, 2), "mlp_only_layers": ([], [1])},
    },
    "granitemoehybrid": {
        **{**COMMON, "num_local_experts": (0, 4, 7), "num_experts_per_tok": (1, 3)},
        **{"mamba_n_heads": (4, 8), "mamba_n_groups": (1, 2, 4), "mamba_d_state": (4, 12, 20)},
        **{"mamba_d_conv": (1, 2, 3, 6), "mamba_expand": (1, 2, 3), "logits_scaling": (1.0, 8.0)},
        **{"mamba_conv_bias": (False, True), "mamba_proj_bias": (False, True)},
        **{"shared_intermediate_size": (16, 40), "position_embedding_type": ("rope", None)},
        "attention_bias": (False, True),
    },
    "gemma4_text": {
        **{**COMMON, "head_dim": (8, 12, 24), "global_head_dim": (8, 16, 32)},
        **{"sliding_window": (1, 5, 33, 100), "hidden_size_per_layer_input": (8, 12)},
        **{"num_kv_shared_layers": (0, 1), "attention_bias": (False, True)},
        **{"attention_k_eq_v": (False, True), "num_global_key_value_heads": (1, 2, 4)},
        **{"enable_moe_block": (False, True), "num_experts": (4, 7), "top_k_experts": (1, 3)},
        **{"use_double_wide_mlp": (False,), **SMALL, "final_logit_softcapping": (None, 2.0, 30.0)},
    },
}
FULL = "full_attention"
OTHERS = {"lfm2": "conv", "lfm2_moe": "conv", "gemma4_text": "sliding_attention"}
"""Kinds of layers beside those that attend to everything, where they are no recurrence."""
HEAD_IS_SHARE = ("lfm2", "lfm2_moe", "granitemoehybrid")
"""Families whose heads divide the hidden size."""


def drawn_sizes(family: str, seed: int) -> dict[str, Any]:
    """Return what is to be changed of a tiny model's config."""
    rng = Random(f"{family} {seed}")
    found = {field: rng.choice(values) for field, values in CHOICES[family].items()}
    kinds = [FULL, OTHERS.get(family, "linear_attention")]
    types = [rng.choice(kinds) for _ in range(rng.randint(1, 4))]
    types += [FULL, FULL] if family == "gemma4_text" else rng.sample(kinds, 2)
    found |= {"num_hidden_layers": len(types), "layer_types": types}
    if family in HEAD_IS_SHARE:
        found["head_dim"] = found["hidden_size"] // 4
    return found
