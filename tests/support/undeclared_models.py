"""Small random models of families that only Transformers knows."""

from pathlib import Path
from typing import Any

import transformers
from transformers import PreTrainedModel

from draftwerk.model.attention.tiled import TiledAttention
from draftwerk.model.generic.causal_lm import read_causal
from draftwerk.model.generic.generic_forward import GenericForward, load_causal
from draftwerk.model.process.parts import DTYPES
from draftwerk.model.reference.kv_pages import page_shape, private_pages
from draftwerk.model.step.backend import LoadedModel
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


def generic_forward(directory: Path, dtype: str = "fp32") -> GenericForward:
    model = read_causal(directory)
    return GenericForward(load_causal(directory, model, DTYPES[dtype]), TiledAttention())


def generic_runner(
    directory: Path, dtype: str = "fp32", block_count: int = 128, block_size: int = 4
) -> TargetRunner:
    """Return a runner with small blocks, so that every text crosses many."""
    model, forward = read_causal(directory), generic_forward(directory, dtype)
    pages = private_pages(page_shape(model, block_count, block_size), DTYPES[dtype])
    return TargetRunner(LoadedModel(forward=forward, pages=pages, vocab_size=model.vocab_size))
