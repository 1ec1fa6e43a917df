"""What is written down of Transformers' classes is what the installed release says."""

from typing import Any

import pytest

from draftwerk.model.checkpoint.architectures import check_keys, completed
from draftwerk.model.checkpoint.end_tokens import declared_ends
from draftwerk.model.checkpoint.keys.class_fields import FILE, fields_of
from draftwerk.model.checkpoint.rope_fields import check_rope, rope_of
from draftwerk.model.checkpoint.supported import check_supported
from draftwerk.model.checkpoint.unsupported import Refused
from validation.config_classes import encoded


@pytest.mark.usefixtures("quiet_transformers")
def test_the_file_is_what_its_command_writes() -> None:
    assert FILE.read_bytes() == encoded()


@pytest.mark.parametrize(
    ("name", "theta"),
    [
        ("CohereForCausalLM", 500_000.0),
        ("HeliumForCausalLM", 100_000.0),
        ("Ernie4_5ForCausalLM", 500_000.0),
        ("MixtralForCausalLM", 1_000_000.0),
    ],
)
def test_a_theta_that_is_left_out_is_the_classs(name: str, theta: float) -> None:
    assert rope_of(completed({"architectures": [name]}))[0] == theta


def test_a_rule_that_is_left_out_is_the_classs() -> None:
    hf = completed({"architectures": ["CwmForCausalLM"]})
    assert rope_of(hf)[1]["factor"] == 16.0
    assert fields_of("CwmForCausalLM").ends == (128001, 128008, 128009)


def test_a_head_that_is_left_out_is_tied_as_the_classs() -> None:
    assert completed({"architectures": ["Starcoder2ForCausalLM"]})["tie_word_embeddings"]


ALL: dict[str, Any] = {
    **{"torch_dtype": "bfloat16", "transformers_version": "4.40.0", "use_cache": True},
    **{"bos_token_id": 1, "eos_token_id": 2, "attention_dropout": 0.0, "initializer_range": 0.02},
}
PUBLISHED: dict[str, dict[str, Any]] = {
    "Llama": {
        **{"model_type": "llama", "pretraining_tp": 1, "attention_bias": False, "mlp_bias": False},
        **{"rope_scaling": None, "rope_theta": 500_000.0, "_name_or_path": "x"},
        **{"is_llama_config": True, "rope_interleaved": False, "transformers.js_config": {}},
        **{"unsloth_version": "2025.3", "unsloth_fixed": True, "max_sequence_length": 2048},
        **{"temperature": 0.6, "top_p": 0.9, "head_dim": 128, "num_labels": 2, "is_decoder": True},
    },
    "Qwen2": {
        **{"model_type": "qwen2", "use_sliding_window": False, "max_window_layers": 21},
        **{"sliding_window": 32768, "rope_theta": 1e6, "use_mrope": False, "rope_scaling": None},
    },
    "Qwen3Moe": {
        **{"model_type": "qwen3_moe", "max_window_layers": 48, "use_sliding_window": False},
        **{"sliding_window": None, "mlp_only_layers": [], "decoder_sparse_step": 1},
        **{"num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768},
        **{"norm_topk_prob": True, "output_router_logits": False, "router_aux_loss_coef": 0.001},
        **{"rope_theta": 1e6, "rope_scaling": None, "attention_bias": False, "head_dim": 128},
    },
    "Phi3": {
        **{"model_type": "phi3", "full_attn_mod": 1, "interpolate_factor": 1, "embd_pdrop": 0.0},
        **{"lm_head_bias": False, "mlp_bias": False, "attention_bias": False, "resid_pdrop": 0.0},
        **{"original_max_position_embeddings": 4096, "partial_rotary_factor": 0.75},
        **{"sliding_window": 262144, "rope_theta": 10_000.0, "auto_map": {"AutoConfig": "x"}},
        "rope_scaling": {"type": "longrope", "short_factor": [1.0] * 48, "long_factor": [1.0] * 48},
        **{"hidden_size": 3072, "num_attention_heads": 24},
    },
    "Gemma2": {
        **{"model_type": "gemma2", "hidden_act": "gelu_pytorch_tanh", "query_pre_attn_scalar": 256},
        **{"hidden_activation": "gelu_pytorch_tanh", "cache_implementation": "hybrid"},
        **{"final_logit_softcapping": 30.0, "attn_logit_softcapping": 50.0, "rope_theta": 1e4},
        **{"sliding_window": 4096, "attention_bias": False, "head_dim": 256},
    },
    "Cohere2": {
        **{"model_type": "cohere2", "order_of_interleaved_layers": "local_attn_first"},
        **{"position_embedding_type": "rope_gptj", "rotary_pct": 1.0, "layer_switch": 4},
        **{"use_embedding_sharing": True, "use_gated_activation": True, "use_qk_norm": False},
        **{"use_parallel_block": True, "use_parallel_embedding": True, "logit_scale": 0.25},
        **{"sliding_window": 4096, "sliding_window_pattern": 4, "cache_implementation": "hybrid"},
        **{"rope_theta": 50_000, "rope_scaling": None, "attention_bias": False, "head_dim": 128},
    },
    "Starcoder2": {
        **{"model_type": "starcoder2", "mlp_type": "default", "norm_type": "layer_norm"},
        **{"embedding_dropout": 0.0, "residual_dropout": 0.0, "use_bias": True, "rope_theta": 1e6},
        **{"hidden_act": "gelu_pytorch_tanh", "sliding_window": 4096, "norm_epsilon": 1e-5},
        **{"attention_softmax_in_fp32": True, "scale_attention_softmax_in_fp32": True},
        "scale_attn_weights": True,
    },
    "HunYuanDenseV1": {
        **{"model_type": "hunyuan_v1_dense", "attention_head_dim": 128, "cla_share_factor": 2},
        **{"class_num": 0, "dense_list": [4096, 0], "eod_token_id": 120020, "im_end_id": 5},
        **{"im_newline_id": 11, "im_start_id": 4, "kv_lora_rank": None, "mask_init_id": 12},
        **{"norm_type": "hf_rms", "org_vocab_size": 120818, "pad_id": 120002, "pool_type": "last"},
        **{"sep_token_id": 120007, "text_end_id": 7, "text_start_id": 6, "use_cla": False},
        **{"use_qk_norm": True, "use_rotary_pos_emb": True, "v_head_dim": None, "head_dim": 128},
        "rope_scaling": {
            **{"alpha": 1000.0, "beta_fast": 32, "beta_slow": 1, "factor": 1.0, "mscale": 1.0},
            **{"mscale_all_dim": 1.0, "type": "dynamic"},
        },
        **{"rope_theta": 10_000.0, "add_classification_head": False, "tie_word_embeddings": True},
    },
    "Lfm2": {
        **{"model_type": "lfm2", "block_auto_adjust_ff_dim": True, "block_dim": 1024},
        **{"block_ff_dim": 6656, "block_ffn_dim_multiplier": 1.0, "block_mlp_init_scale": 1.0},
        **{"block_multiple_of": 256, "block_norm_eps": 1e-5, "block_out_init_scale": 1.0},
        **{"block_use_swiglu": True, "block_use_xavier_init": True, "conv_L_cache": 3},
        **{"conv_bias": False, "conv_dim": 1024, "conv_dim_out": 1024, "use_pos_enc": True},
        **{"conv_use_xavier_init": True, "full_attn_idxs": [2, 5], "num_heads": 16},
        **{"rope_theta": 1e6, "num_hidden_layers": 6, "norm_eps": 1e-5},
    },
    "GptOss": {
        **{"model_type": "gpt_oss", "experts_per_token": 4, "initial_context_length": 4096},
        **{"num_experts_per_tok": 4, "num_local_experts": 32, "sliding_window": 128},
        **{"swiglu_limit": 7.0, "attention_bias": True, "output_router_logits": False},
        "rope_scaling": {
            **{"beta_fast": 32.0, "beta_slow": 1.0, "factor": 32.0, "rope_type": "yarn"},
            **{"original_max_position_embeddings": 4096, "truncate": False},
        },
        "rope_theta": 150_000,
    },
    "Qwen3Next": {
        **{"model_type": "qwen3_next", "full_attention_interval": 4, "mlp_only_layers": []},
        **{"partial_rotary_factor": 0.25, "rope_theta": 1e7, "rope_scaling": None},
        **{"linear_conv_kernel_dim": 4, "shared_expert_intermediate_size": 512},
        **{"norm_topk_prob": True, "router_aux_loss_coef": 0.001, "attention_bias": False},
    },
    "GraniteMoeHybrid": {
        **{"model_type": "granitemoehybrid", "normalization_function": "rmsnorm"},
        **{"init_method": "mup", "position_embedding_type": "nope", "num_local_experts": 0},
        **{"mamba_chunk_size": 256, "mamba_d_head": 64, "router_aux_loss_coef": 0.01},
        **{"layer_types": ["mamba"] * 31 + ["attention"], "rope_scaling": None},
        **{"num_experts_per_tok": 0, "attention_bias": False, "logits_scaling": 6},
    },
    "Olmo2": {"model_type": "olmo2", "rope_scaling": None, "attention_bias": False},
}
"""Keys of configs as their makers publish them."""


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_config_as_its_makers_publish_it_is_taken(name: str) -> None:
    given = {"architectures": [f"{name}ForCausalLM"], **ALL, **PUBLISHED[name]}
    check_keys(given)
    hf = completed(given)
    check_supported(hf)
    check_rope(hf)


def test_an_end_that_is_null_is_none() -> None:
    sizes = {"architectures": ["LlamaForCausalLM"], "vocab_size": 97}
    assert declared_ends(completed(sizes), {}) == (2,)
    assert declared_ends(completed({**sizes, "eos_token_id": None}), {}) == ()


LINEAR = {"rope_type": "linear", "factor": 8.0}
BY_KIND = {"full_attention": LINEAR, "sliding_attention": {"rope_type": "default"}}
CONTRADICTIONS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "a flat rule": ("Gemma3", "rope_parameters of this class", {"rope_parameters": LINEAR}),
    "two rules": ("Gemma3", "rope_scaling", {"rope_parameters": BY_KIND, "rope_scaling": LINEAR}),
    "an old word": ("Gemma3", "rope_type", {"rope_scaling": {"type": "linear", "factor": 8.0}}),
    "a window turned off": (
        "Qwen2",
        "use_sliding_window false",
        {"layer_types": ["sliding_attention"] * 32, "sliding_window": 8},
    ),
}


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_what_transformers_would_not_obey_is_refused(name: str) -> None:
    family, said, fields = CONTRADICTIONS[name]
    with pytest.raises(Refused, match=said):
        hf = completed({"architectures": [f"{family}ForCausalLM"], **fields})
        check_supported(hf)
        check_rope(hf)
