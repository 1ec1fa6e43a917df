"""Configs as their makers publish them, in older words than Transformers writes today."""

import json
from pathlib import Path
from typing import Any

import pytest

from draftwerk.model.checkpoint.architectures import NEEDED, check_keys, completed, nested
from draftwerk.model.checkpoint.config import ModelConfig
from draftwerk.model.checkpoint.hf_config import model_config, read_config
from draftwerk.model.checkpoint.rope import rotary
from draftwerk.model.checkpoint.rope_fields import check_rope
from draftwerk.model.checkpoint.supported import check_supported
from draftwerk.model.checkpoint.unsupported import Refused

SIZES = {
    "vocab_size": 97,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-6,
}


def config_of(name: str, **fields: Any) -> ModelConfig:
    given = {"architectures": [name], **SIZES, **fields}
    check_keys(given)
    hf = completed(given)
    check_supported(hf)
    check_rope(hf)
    return model_config(hf, {})


def test_gemma_3_leaves_out_what_its_class_says() -> None:
    """The 4B model's `text_config` names six fields, and its local theta none."""
    text = {
        **{"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 7},
        **{"model_type": "gemma3_text", "sliding_window": 1024},
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
    }
    hf = completed(
        {
            "architectures": ["Gemma3ForConditionalGeneration"],
            "model_type": "gemma3",
            "eos_token_id": [1, 106],
            "text_config": text,
        }
    )
    check_supported(hf)
    config = model_config(hf, {})
    assert [kind.window for kind in config.layers] == [1024] * 5 + [0, 1024]
    assert [kind.rotary for kind in config.layers] == [1] * 5 + [0, 1]
    assert config.local_rotary is not None
    assert config.local_rotary.inverse_frequencies == rotary(256, 1e4, {}, 0)[0]
    linear = {"rope_type": "linear", "factor": 8.0}
    assert config.rope_inverse_frequencies == rotary(256, 1e6, linear, 0)[0]
    assert (config.vocab_size, config.num_heads, config.num_kv_heads) == (262_208, 8, 4)
    assert config.eos_token_ids == (1, 106)
    assert config.tied_embeddings


def test_olmo_3_scales_the_rotary_of_full_layers_alone() -> None:
    yarn = {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 8192}
    config = config_of(
        "Olmo3ForCausalLM",
        rope_theta=500_000,
        rope_scaling=yarn,
        sliding_window=4096,
        max_position_embeddings=65_536,
    )
    assert [kind.rotary for kind in config.layers] == [1, 1, 1, 0, 1, 1]
    assert config.local_rotary is not None
    assert config.local_rotary.inverse_frequencies == rotary(16, 5e5, {}, 0)[0]
    assert config.rope_inverse_frequencies == rotary(16, 5e5, yarn, 0)[0]


@pytest.mark.parametrize("kind", ["su", "longrope", "yarn"])
@pytest.mark.parametrize("context", [4096, 131_072])
def test_phi_names_its_rule_in_three_ways(kind: str, context: int) -> None:
    rule = {"short_factor": [1.0] * 6, "long_factor": [2.0, 3.0, 4.0, 5.0, 6.0, 7.0]}
    config = config_of(
        "Phi3ForCausalLM",
        rope_scaling={"type": kind, **rule},
        partial_rotary_factor=0.75,
        original_max_position_embeddings=4096,
        max_position_embeddings=context,
        sliding_window=262_144,
    )
    divisors = rule["long_factor" if context > 4096 else "short_factor"]
    plain = rotary(12, 1e4, {}, 0)[0]
    expected = [each / by for each, by in zip(plain, divisors, strict=True)]
    assert config.rope_inverse_frequencies == pytest.approx(expected, rel=1e-6)
    assert (config.rope_magnitude > 1) == (context > 4096)
    assert config.layers == ()


QWEN_EXPERTS = {
    "head_dim": 8,
    "num_key_value_heads": 2,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 8,
}
MAMBA = {
    **{"num_local_experts": 0, "shared_intermediate_size": 8, "mamba_d_state": 8},
    **{"mamba_n_heads": 8, "mamba_expand": 1},
    "layer_types": ["mamba"] * 5 + ["attention"],
}
REFUSALS = {
    **{
        f"{field} {value}": ("Qwen3MoeForCausalLM", {**QWEN_EXPERTS, field: value}, field)
        for field, value in (
            *(("num_experts", 0), ("num_experts_per_tok", 5), ("num_experts_per_tok", None)),
            *(("moe_intermediate_size", "8"), ("decoder_sparse_step", 0), ("mlp_only_layers", 3)),
        )
    },
    "clip": (
        "OlmoeForCausalLM",
        {"num_experts": 4, "num_experts_per_tok": 2, "clip_qkv": 8.0},
        "clip_qkv 8.0",
    ),
    "no norms around": ("HyperCLOVAXForCausalLM", {"use_post_norm": False}, "use_post_norm"),
    "both ways in a recurrence": (
        "GraniteMoeHybridForCausalLM",
        {**MAMBA, "is_causal": False},
        "is_causal false is not supported with a recurrence",
    ),
    "both ways": (
        "Gemma3ForCausalLM",
        {"use_bidirectional_attention": "all", "model_type": "gemma3_text"},
        "use_bidirectional_attention 'all'",
    ),
    "an order of time": ("LlamaForCausalLM", {"is_causal": "no"}, "is_causal 'no'"),
    "NoPE list": ("SmolLM3ForCausalLM", {"no_rope_layers": [[1]] * 6}, "no_rope_layers"),
    "multiplier": ("GraniteForCausalLM", {"logits_scaling": 0}, "logits_scaling 0"),
    "experts": (
        "GraniteMoeHybridForCausalLM",
        {**MAMBA, "num_local_experts": 2, "num_experts_per_tok": 4},
        "num_experts_per_tok 4 is more than num_local_experts 2",
    ),
    **{
        f"Mamba, {field} {value}": ("GraniteMoeHybridForCausalLM", {**MAMBA, field: value}, reason)
        for field, value, reason in (
            ("layer_types", ["mamba"] * 6, "layer_types without attention"),
            ("layer_types", [*["attention"] * 5, "chunked"], "layer_types 'chunked'"),
            ("mamba_n_heads", 7, "mamba_n_heads 7 does not go with 64 values, 1 groups"),
            ("mamba_d_head", 5, "mamba_d_head 5 contradicts mamba_n_heads 8"),
            ("mamba_d_state", None, "mamba_d_state None is not a count"),
            ("time_step_limit", [0.1, 1.0], "time_step_limit"),
            ("hidden_act", "relu2", "hidden_act 'relu2' is not supported in a recurrence"),
        )
    },
    "layer type": ("Olmo3ForCausalLM", {"layer_types": ["chunked"] * 6}, "layer_types 'chunked'"),
    "window": ("MistralForCausalLM", {"sliding_window": "wide"}, "sliding_window 'wide'"),
    "all layers beside a window": (
        "MistralForCausalLM",
        {"sliding_window": 64, "layer_types": [*["sliding_attention"] * 5, "full_attention"]},
        "layer_types 'full_attention' contradicts sliding_window 64",
    ),
    "a window that is not used": (
        "SmolLM3ForCausalLM",
        {"sliding_window": 64, "layer_types": ["sliding_attention"] * 6},
        "layer_types 'sliding_attention' contradicts use_sliding_window false",
    ),
    "side by side": (
        "StableLmForCausalLM",
        {"use_parallel_residual": True, "rms_norm_eps": None},
        "use_parallel_residual",
    ),
    "no alpha": (
        "HunYuanDenseV1ForCausalLM",
        {"rope_scaling": {"type": "dynamic", "factor": 2.0}},
        "lacks alpha",
    ),
    "no temperature": (
        "Ministral3ForCausalLM",
        {"head_dim": 16, "rope_parameters": {"rope_type": "default"}},
        "llama_4_scaling_beta",
    ),
    "factors": (
        "Phi3ForCausalLM",
        {
            "rope_scaling": {"type": "longrope", "short_factor": [1.0], "long_factor": [1.0]},
            "original_max_position_embeddings": 64,
        },
        "short_factor has 1 numbers, not 8",
    ),
}


@pytest.mark.parametrize(("name", "fields", "said"), REFUSALS.values(), ids=REFUSALS)
def test_what_is_not_obeyed_is_refused_by_its_field(name, fields, said) -> None:
    with pytest.raises(Refused, match=said):
        config_of(name, **{"max_position_embeddings": 512, **fields})


@pytest.mark.parametrize(
    ("kind", "field"), [("gemma2", "final_logit_softcapping"), ("granite", "logits_scaling")]
)
def test_a_wrapper_that_drops_what_a_text_makes_of_logits_is_refused(
    kind: str, field: str, tmp_path: Path
) -> None:
    text = {
        **{"model_type": kind, "hidden_size": 32, "num_hidden_layers": 2, field: 3.0},
        **{"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8},
    }
    config = {"architectures": ["LlavaForConditionalGeneration"], "text_config": text}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(Refused, match=f"text_config {field} 3.0 is not supported: its wrapper"):
        read_config(tmp_path)


QWEN_TEXT = {**SIZES, "max_position_embeddings": 512, "rope_theta": 1e6, "hidden_act": "silu"}


@pytest.mark.parametrize(("name", "kind"), [("2VL", "qwen2_vl"), ("2_5_VL", "qwen2_5_vl")])
def test_qwens_first_files_have_the_texts_fields_beside_the_pictures(name: str, kind: str) -> None:
    beside = {
        "architectures": [f"Qwen{name}ForConditionalGeneration"],
        "model_type": kind,
        "vision_config": {"depth": 32},
        "tie_word_embeddings": True,
    }
    mrope = {"type": "mrope", "mrope_section": [2, 3, 3]}
    old = {**beside, **QWEN_TEXT, "image_token_id": 9, "rope_scaling": mrope}
    rule = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [2, 3, 3]}
    new = {**beside, "text_config": {**QWEN_TEXT, "model_type": f"{kind}_text"}}
    new["text_config"] |= {"rope_parameters": rule, "tie_word_embeddings": None}
    found = [nested(each) for each in (old, new)]
    for each in found:
        check_keys(each)
    configs = [model_config(completed(each), {}) for each in found]
    assert configs[0] == configs[1]
    assert configs[0].tied_embeddings and configs[0].architecture == "Qwen2ForCausalLM"


@pytest.mark.parametrize("field", [*NEEDED, "rope_theta"])
def test_what_a_text_beside_qwens_pictures_leaves_out_is_refused(field: str) -> None:
    text = {key: value for key, value in QWEN_TEXT.items() if key != field}
    with pytest.raises(Refused, match=f"text_config lacks {field}"):
        completed({"architectures": ["Qwen3VLForConditionalGeneration"], "text_config": text})


def test_a_text_of_another_class_beside_qwens_pictures_is_refused() -> None:
    hf = {"architectures": ["Qwen3VLForConditionalGeneration"], "model_type": "qwen3_vl"}
    text = {**QWEN_TEXT, "model_type": "qwen2_5_vl_text"}
    with pytest.raises(Refused, match="text_config model_type 'qwen2_5_vl_text'"):
        completed({**hf, "text_config": text})
