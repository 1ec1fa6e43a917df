"""Small random models of every family served, made by Transformers, which then is the oracle."""

from pathlib import Path
from shutil import copy
from typing import Any

import torch
import transformers
from torch import Tensor
from transformers import PreTrainedModel
from transformers.initialization import no_init_weights

from draftwerk.model.checkpoint.architectures import ARCHITECTURES
from draftwerk.model.checkpoint.hub import locate
from draftwerk.model.checkpoint.info import read_info
from tests.support.toy import ToyText

VOCAB = 97
FAMILIES: dict[str, Any] = {
    row.model_type: getattr(transformers, row.hf_name) for row in ARCHITECTURES
}
"""Their classes, by `model_type`: whatever is served is compared."""
GRANITE = {
    "embedding_multiplier": 3.0,
    "residual_multiplier": 0.4,
    "attention_multiplier": 0.21,
    "logits_scaling": 1.7,
}
DELTA: dict[str, Any] = {
    **{"num_hidden_layers": 4, "head_dim": 16, "linear_conv_kernel_dim": 4},
    **{"linear_num_key_heads": 2, "linear_num_value_heads": 6},
    **{"linear_key_head_dim": 8, "linear_value_head_dim": 16},
    # With less, two ways of Transformers' own to compute it are further apart than 1e-4.
    "rms_norm_eps": 0.01,
    "layer_types": ["linear_attention", "full_attention"] * 2,
}
DELTA_EXPERTS = {
    **{"moe_intermediate_size": 32, "num_experts": 7, "num_experts_per_tok": 3},
    "shared_expert_intermediate_size": 32,
    "num_hidden_layers": 3,
    "layer_types": ["linear_attention", "full_attention", "linear_attention"],
}
CAPPED = {
    **{"num_hidden_layers": 4, "sliding_window": 17, "query_pre_attn_scalar": 10},
    **{"attn_logit_softcapping": 3.0, "final_logit_softcapping": 2.0},
}
SETTINGS: dict[str, dict[str, Any]] = {
    "smollm3": {"num_hidden_layers": 3, "no_rope_layers": [1, 0, 1]},
    "granite": GRANITE,
    "hyperclovax": GRANITE,
    "granitemoehybrid": {
        **GRANITE,
        **{"num_local_experts": 5, "num_experts_per_tok": 3, "shared_intermediate_size": 64},
        **{"num_hidden_layers": 4, "position_embedding_type": "rope"},
        "layer_types": ["linear_attention", "full_attention", *["linear_attention"] * 2],
        **{"mamba_n_heads": 8, "mamba_n_groups": 2, "mamba_d_state": 12, "mamba_d_conv": 4},
    },
    "qwen3_moe": {
        **{"moe_intermediate_size": 32, "num_experts": 7, "num_experts_per_tok": 3},
        **{"num_hidden_layers": 3, "norm_topk_prob": True},
    },
    "qwen2_moe": {
        **{"moe_intermediate_size": 32, "num_experts": 7, "num_experts_per_tok": 3},
        "shared_expert_intermediate_size": 64,
    },
    "mixtral": {"num_local_experts": 5, "num_experts_per_tok": 2},
    "olmoe": {"num_experts": 6, "num_experts_per_tok": 2},
    "granitemoe": {
        **GRANITE,
        **{"num_local_experts": 5, "num_experts_per_tok": 3},
    },
    "granitemoeshared": {
        **GRANITE,
        **{"num_local_experts": 5, "num_experts_per_tok": 3, "shared_intermediate_size": 24},
    },
    "gpt_oss": {
        **{"num_local_experts": 5, "num_experts_per_tok": 3, "num_hidden_layers": 4},
        **{"sliding_window": 17, "swiglu_limit": 1.5},
    },
    "phi3": {"hidden_size": 48, "head_dim": 12},
    "olmo2": {"head_dim": 8},
    "olmo3": {
        "num_hidden_layers": 4,
        "sliding_window": 17,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
    },
    **dict.fromkeys(("gemma2", "vaultgemma"), CAPPED),
    "gemma3_text": {"num_hidden_layers": 4, "sliding_window": 17, "sliding_window_pattern": 2},
    "gemma4_text": {
        **{"num_hidden_layers": 6, "sliding_window": 17, "head_dim": 8, "global_head_dim": 16},
        **{"num_kv_shared_layers": 3, "use_double_wide_mlp": True, "final_logit_softcapping": 2.0},
        **{"hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": VOCAB},
        "layer_types": ["sliding_attention", "full_attention"] * 3,
    },
    "gemma4_unified_text": {
        **{"num_hidden_layers": 4, "sliding_window": 17, "head_dim": 8, "global_head_dim": 16},
        **{"attention_k_eq_v": True, "num_global_key_value_heads": 1},
        "layer_types": ["sliding_attention", "full_attention"] * 2,
    },
    "exaone4": {"num_hidden_layers": 4, "sliding_window": 17, "sliding_window_pattern": 2},
    "cohere2": {
        "num_hidden_layers": 4,
        "sliding_window": 17,
        "sliding_window_pattern": 2,
        "logit_scale": 0.3,
    },
    "ministral3": {
        "rope_parameters": {
            "rope_type": "yarn",
            "rope_theta": 10_000.0,
            "factor": 4.0,
            "original_max_position_embeddings": 20,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "mscale": 1.0,
            "mscale_all_dim": 1.0,
            "llama_4_scaling_beta": 0.3,
        },
    },
    "hunyuan_v1_dense": {
        "rope_parameters": {
            "rope_type": "dynamic",
            "rope_theta": 10_000.0,
            "alpha": 50.0,
            "factor": 1.0,
        },
    },
    "seed_oss": {"attention_out_bias": True, "mlp_bias": True},
    "arcee": {"mlp_bias": True},
    "starcoder2": {"sliding_window": 17},
    "nemotron": {"mlp_bias": True},
    "ministral": {"sliding_window": 17},
    "cwm": {"num_hidden_layers": 4, "sliding_window": 17},
    "cohere": {"logit_scale": 0.3},
    "stablelm": {"use_qkv_bias": True},
    "ernie4_5": {"use_bias": True},
    "lfm2": {
        **{"num_hidden_layers": 5, "conv_L_cache": 3, "block_multiple_of": 8},
        "layer_types": ["conv", "full_attention", "conv", "full_attention", "conv"],
    },
    "lfm2_moe": {
        **{"moe_intermediate_size": 32, "num_experts": 7, "num_experts_per_tok": 3},
        **{"num_hidden_layers": 4, "num_dense_layers": 1, "routed_scaling_factor": 1.4},
        "layer_types": ["conv", "full_attention", "conv", "full_attention"],
    },
    "qwen3_5_text": DELTA,
    "qwen3_5_moe_text": {**DELTA, **DELTA_EXPERTS},
    "qwen3_next": {**DELTA, **DELTA_EXPERTS},
}
"""What makes each family's own switches matter."""
ROPES: dict[str, dict[str, Any]] = {
    "linear": {"rope_type": "linear", "factor": 4.0},
    "dynamic": {"rope_type": "dynamic", "factor": 4.0},
    "llama3": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    },
    "yarn": {
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 64,
    },
    "longrope": {
        "rope_type": "longrope",
        "short_factor": [1.0, 1.1, 1.3, 1.2, 1.5, 1.4],
        "long_factor": [1.0, 2.0, 3.0, 5.0, 4.0, 8.0],
        "original_max_position_embeddings": 512,
    },
    "partial": {"rope_type": "default", "partial_rotary_factor": 0.5},
}
BY_LAYER = {
    "linear": {
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 20_000.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
    },
    "yarn": {
        "full_attention": {**ROPES["yarn"], "rope_theta": 10_000.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
    },
}
"""Rules for layers with and without a window."""

GEMMA4_EXPERTS: dict[str, Any] = {
    **{"enable_moe_block": True, "num_experts": 7, "top_k_experts": 3},
    **{"moe_intermediate_size": 32, "use_double_wide_mlp": False},
    **{"attention_k_eq_v": True, "num_global_key_value_heads": 1},
    **{"hidden_size_per_layer_input": 0, "num_kv_shared_layers": 0},
}
"""As its largest model has them."""
SIZES: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama, grouped queries": ("llama", {}),
    "llama, one KV head": ("llama", {"num_key_value_heads": 1}),
    "llama, one KV head each": ("llama", {"num_key_value_heads": 4}),
    "llama, biases": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "llama, tied": ("llama", {"tie_word_embeddings": True}),
    "llama, wide heads": ("llama", {"head_dim": 16}),
    "llama, linear rope": ("llama", {"rope": "linear"}),
    "llama, llama3 rope": ("llama", {"rope": "llama3"}),
    "llama, yarn rope": ("llama", {"rope": "yarn"}),
    "llama, dynamic rope": ("llama", {"rope": "dynamic"}),
    "llama, gates by another activation": ("llama", {"hidden_act": "relu2"}),
    "qwen3_moe, a dense layer": ("qwen3_moe", {"mlp_only_layers": [1], "norm_topk_prob": False}),
    "qwen3_moe": ("qwen3_moe", {}),
    "qwen2_moe": ("qwen2_moe", {}),
    "qwen2_moe, dense layers": (
        "qwen2_moe",
        {"num_hidden_layers": 4, "decoder_sparse_step": 2, "mlp_only_layers": [1]},
    ),
    "qwen3_moe, many experts": ("qwen3_moe", {"num_experts": 40, "num_experts_per_tok": 5}),
    "mistral": ("mistral", {}),
    "mistral, window": ("mistral", {"sliding_window": 5}),
    **{f"mistral, window of {n}": ("mistral", {"sliding_window": n}) for n in (1, 128, 129)},
    "qwen2, window": (
        "qwen2",
        {"use_sliding_window": True, "sliding_window": 17, "max_window_layers": 1},
    ),
    "granite 4, no rotation": ("granitemoehybrid", {"position_embedding_type": None}),
    "granite 4, no experts, one group": (
        "granitemoehybrid",
        {"num_local_experts": 0, "mamba_n_groups": 1, "mamba_conv_bias": False},
    ),
    "granite 4, attention alone": (
        "granitemoehybrid",
        {"num_local_experts": 0, "num_hidden_layers": 2, "layer_types": ["full_attention"] * 2},
    ),
    "granite 4, biases": ("granitemoehybrid", {"mamba_proj_bias": True}),
    "phi3, short factors": ("phi3", {"rope": "longrope"}),
    "phi3, partial": ("phi3", {"rope": "partial"}),
    "phi3, window": ("phi3", {"sliding_window": 127}),
    "exaone4, no window": (
        "exaone4",
        {"sliding_window": None, "layer_types": ["full_attention"] * 4, "rope": "llama3"},
    ),
    "gemma3, linear rope": ("gemma3_text", {"rope_parameters": BY_LAYER["linear"]}),
    "gemma4, keys that are values": (
        "gemma4_text",
        {
            **{"attention_k_eq_v": True, "num_global_key_value_heads": 1},
            **{"hidden_size_per_layer_input": 0, "num_kv_shared_layers": 0},
        },
    ),
    "gemma4, experts": ("gemma4_text", GEMMA4_EXPERTS),
    "gemma4, narrow full heads, one KV head, no sharing": (
        "gemma4_text",
        {
            **{"global_head_dim": 8, "head_dim": 24, "num_key_value_heads": 1},
            **{"num_kv_shared_layers": 0, "final_logit_softcapping": None},
        },
    ),
    "olmo3, yarn on some layers": ("olmo3", {"rope_parameters": BY_LAYER["yarn"]}),
    "stablelm": ("stablelm", {}),
    "stablelm, norms of each head": ("stablelm", {"qk_layernorm": True}),
    "qwen2, biases": ("qwen2", {}),
    "qwen2, tied, one KV head": ("qwen2", {"num_key_value_heads": 1, "tie_word_embeddings": True}),
    "qwen3, query and key norms": ("qwen3", {}),
    "lfm2, an attending layer last, biases": (
        "lfm2",
        {"num_hidden_layers": 2, "layer_types": ["conv", "full_attention"], "conv_bias": True},
    ),
    "lfm2, a plane that is half full": ("lfm2", {"hidden_size": 36}),
    "lfm2, four taps, narrow planes": ("lfm2", {"conv_L_cache": 4, "num_key_value_heads": 1}),
    "qwen3.5, half of each head turns": (
        "qwen3_5_text",
        {"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}},
    ),
    "qwen3, biases, yarn": ("qwen3", {"attention_bias": True, "rope": "yarn"}),
}
CASES |= {
    family: (family, {}) for family in FAMILIES if family not in {of for of, _ in CASES.values()}
}
"""Families with what their configs can vary, by name."""


class TinyWords(ToyText):
    """The tiny models' vocabulary as words: ids in, ids out."""

    vocab_size = VOCAB


def tiny_model(family: str, seed: int = 0, **changes: Any) -> PreTrainedModel:
    """Return a two-layer model in float32, every parameter random: norms and biases too."""
    if "rope" in changes:
        changes["rope_parameters"] = {
            "rope_theta": 10_000.0,
            **ROPES[changes.pop("rope")],
            **changes.pop("rope_changes", {}),
        }
    grouped = {"num_key_value_heads": 2, "head_dim": 8, "sliding_window": None}
    settings = SIZES | grouped | SETTINGS.get(family, {}) | changes
    return random_model(FAMILIES[family], settings, seed)


def random_model(model_class: Any, settings: dict[str, Any], seed: int = 0) -> PreTrainedModel:
    """Return a model of a class of Transformers, every parameter random."""
    with no_init_weights():
        model = model_class(model_class.config_class(**settings)).eval()
    model.tie_weights()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            centre = 1.0 if name.endswith("norm.weight") else 0.0
            spread = 3.0 if name.endswith("sinks") else 0.25
            if name == "lm_head.weight" and has_delta_rule(model):
                spread = 0.05
            parameter.copy_(centre + spread * noise)
        for name, buffer in model.named_buffers():
            if name.endswith("expert_bias"):
                buffer.copy_(torch.randn(buffer.shape, generator=generator))
            if name.endswith("layer_scalar"):
                buffer.copy_(1.0 + 0.1 * torch.randn(buffer.shape, generator=generator))
    return model


def has_delta_rule(model: PreTrainedModel) -> bool:
    """Whether rounding is amplified, as each head's outcome is normed whatever its size."""
    return "linear_attention" in (getattr(model.config, "layer_types", None) or ())


@torch.no_grad()
def have_tokens_follow(model: PreTrainedModel) -> PreTrainedModel:
    """Have a token follow from the one before, by one permutation, as a rule.

    Embeddings are so long that what layers add counts for little.
    """
    embedding, noise = model.get_input_embeddings().weight, torch.Generator().manual_seed(5)
    followers = torch.randperm(len(embedding), generator=noise)
    directions = torch.randn(embedding.shape, generator=noise)
    directions /= directions.norm(dim=-1, keepdim=True)
    embedding.copy_(100 * directions)
    model.get_output_embeddings().weight[followers] = 16 * directions
    return model


def save_tiny(directory: Path, family: str, seed: int = 0, **changes: Any) -> PreTrainedModel:
    """Save such a model as a safetensors directory and return it."""
    model = tiny_model(family, seed, **changes)
    model.save_pretrained(directory)
    return model


def save_tiny_with_text(
    directory: Path, seed: int = 0, family: str = "llama", **sizes: Any
) -> None:
    """Save such a model over the default model's tokens, its tokenizer beside it."""
    sizes = {**text_sizes(), **sizes}
    save_tiny(directory, family, seed, **sizes)
    copy_text(directory)


def text_sizes() -> dict[str, int]:
    """Return a config's fields for texts of the default model's tokens."""
    return {"vocab_size": read_info(locate(None)).vocab_size, "max_position_embeddings": 2048}


def copy_text(directory: Path) -> None:
    """Put the default model's tokenizer beside a model."""
    source = locate(None).directory
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        copy(source / name, directory)


@torch.no_grad()
def oracle_logits(model: PreTrainedModel, tokens: list[int]) -> Tensor:
    """Return Transformers' logits [T, vocab] of one text.

    A delta rule computes a whole text in chunks, which are less exact than one token at a time.
    """
    if not has_delta_rule(model):
        return model(torch.tensor([tokens])).logits[0]
    found, past = list[Tensor](), None
    for token in tokens:
        answer = model(torch.tensor([[token]]), past_key_values=past, use_cache=True)
        past = answer.past_key_values
        found.append(answer.logits[0])
    return torch.cat(found)


def own_rounding(model: PreTrainedModel, tokens: list[int]) -> float:
    """Return how far Transformers' logits in float32 are from its own in float64."""
    narrow = oracle_logits(model, tokens)
    model.config._experts_implementation = "eager"  # the usual products know no float64
    return float((oracle_logits(model.double(), tokens) - narrow).abs().max())


@torch.no_grad()
def oracle_greedy(model: PreTrainedModel, prompt: list[int], count: int) -> list[int]:
    """Return Transformers' greedy continuation, end tokens ignored."""
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(int(model(torch.tensor([tokens])).logits[0, -1].argmax()))
    return tokens[len(prompt) :]
