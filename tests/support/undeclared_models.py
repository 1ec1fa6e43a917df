"""Small random models of families that only Transformers knows."""

from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import PreTrainedModel

from draftwerk.model.attention.tiled import TiledAttention
from draftwerk.model.generic.causal_lm import read_causal
from draftwerk.model.generic.generic_forward import GenericForward, load_causal
from draftwerk.model.process.parts import DTYPES
from draftwerk.model.reference.kv_pages import page_shape, private_pages
from draftwerk.model.step.loaded_model import LoadedModel
from draftwerk.model.step.options.step_options import target_runner
from draftwerk.model.step.target_runner import TargetRunner
from tests.support.tiny_models import SIZES, random_model

GROUPED = {"num_key_value_heads": 2, "head_dim": 8}
EXPERTS = {
    **GROUPED,
    **{"moe_intermediate_size": 24, "num_experts": 6, "num_experts_per_tok": 2},
}
ROUTED = {
    **GROUPED,
    **{"moe_intermediate_size": 24, "n_routed_experts": 6, "num_experts_per_tok": 2},
    **{"n_group": 1, "topk_group": 1, "first_k_dense_replace": 1, "n_shared_experts": 1},
}
SLIDING, FULL = "sliding_attention", "full_attention"
GEMMA4 = {
    **{"num_hidden_layers": 7, "num_kv_shared_layers": 3, "sliding_window": 17},
    "layer_types": [SLIDING, SLIDING, FULL, SLIDING, SLIDING, FULL, FULL],
    **{"num_key_value_heads": 2, "head_dim": 8, "global_head_dim": 12, "use_double_wide_mlp": True},
    **{"hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": SIZES["vocab_size"]},
    "final_logit_softcapping": 30.0,
}
WITH_IMAGES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "Gemma4": (GEMMA4, {"num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 8}),
    "Llava": (
        {"model_type": "llama", **GROUPED},
        {
            "model_type": "clip_vision_model",
            "num_attention_heads": 2,
            "image_size": 8,
            "patch_size": 4,
        },
    ),
}
"""Of classes that see images, what their texts' and eyes' configs need."""
UNDECLARED: dict[str, tuple[str, dict[str, Any]]] = {
    "apertus": ("ApertusForCausalLM", GROUPED),
    "dots1": ("Dots1ForCausalLM", ROUTED),
    "ernie4_5_moe": (
        "Ernie4_5_MoeForCausalLM",
        {**GROUPED, "moe_intermediate_size": 24, "moe_num_experts": 6, "moe_k": 2},
    ),
    "exaone_moe": (
        "ExaoneMoeForCausalLM",
        {
            **{**EXPERTS, "n_group": 1, "topk_group": 1, "num_hidden_layers": 4},
            **{"sliding_window": 17, "sliding_window_pattern": 2},
            **{"first_k_dense_replace": 1, "mlp_layer_types": ["dense", *["sparse"] * 3]},
        },
    ),
    "flex_olmo": ("FlexOlmoForCausalLM", EXPERTS),
    "flint": ("FlintForCausalLM", {**EXPERTS, "sliding_window": 17}),
    "granitemoe_swa": ("GraniteMoeSWAForCausalLM", {**GROUPED, "num_local_experts": 5}),
    "gemma4_text": ("Gemma4ForCausalLM", GEMMA4),
    "gemma4_text with experts": (
        "Gemma4ForCausalLM",
        {
            **GEMMA4,
            **{"num_kv_shared_layers": 0, "hidden_size_per_layer_input": 0},
            **{"attention_k_eq_v": True, "num_global_key_value_heads": 1},
            **{"enable_moe_block": True, "num_experts": 6, "top_k_experts": 4},
            "moe_intermediate_size": 24,
        },
    ),
    "gpt2": ("GPT2LMHeadModel", {"n_positions": 512}),
    "gpt_bigcode": ("GPTBigCodeForCausalLM", {"n_positions": 512}),
    "gpt_neox": ("GPTNeoXForCausalLM", {}),
    "jais2": ("Jais2ForCausalLM", GROUPED),
    "nanochat": ("NanoChatForCausalLM", GROUPED),
    "olmo": ("OlmoForCausalLM", {"num_key_value_heads": 2, "clip_qkv": 3.0}),
    "opt": ("OPTForCausalLM", {"ffn_dim": 48, "word_embed_proj_dim": 32}),
    "persimmon": ("PersimmonForCausalLM", {}),
    "phi": ("PhiForCausalLM", {"num_key_value_heads": 2, "qk_layernorm": True}),
    "qwen2_moe": ("Qwen2MoeForCausalLM", {**EXPERTS, "shared_expert_intermediate_size": 24}),
    "vaultgemma": (
        "VaultGemmaForCausalLM",
        {**GROUPED, "sliding_window": 17, "query_pre_attn_scalar": 10},
    ),
}
"""Classes by `model_type`, and what else their configs need."""


def save_undeclared(directory: Path, family: str, seed: int = 0, **changes: Any) -> PreTrainedModel:
    """Save a model as a safetensors directory; returns it with Transformers' own attention."""
    name, settings = UNDECLARED[family]
    model = random_model(getattr(transformers, name), SIZES | settings | changes, seed)
    model.save_pretrained(directory)
    model.set_attn_implementation("eager")
    return model


def save_with_images(directory: Path, name: str) -> PreTrainedModel:
    """Save a random model that sees images; returns it with Transformers' own attention."""
    vision = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
    text, heads = WITH_IMAGES[name]
    config = getattr(transformers, f"{name}Config")(
        text_config=SIZES | text, vision_config=vision | heads, audio_config=None
    )
    torch.manual_seed(0)
    model = getattr(transformers, f"{name}ForConditionalGeneration")(config).eval()
    model.save_pretrained(directory)
    model.set_attn_implementation("eager")
    return model


def generic_forward(directory: Path, dtype: str = "fp32") -> GenericForward:
    model = read_causal(directory)
    loaded = load_causal(directory, model, DTYPES[dtype])
    return GenericForward(loaded, TiledAttention(), model.layers)


def generic_runner(
    directory: Path, dtype: str = "fp32", block_count: int = 128, block_size: int = 4
) -> TargetRunner:
    """Return a runner with small blocks, so that every text crosses many."""
    model, forward = read_causal(directory), generic_forward(directory, dtype)
    pages = private_pages(page_shape(model, block_count, block_size), DTYPES[dtype])
    return target_runner(LoadedModel(forward=forward, pages=pages, vocab_size=model.vocab_size))
