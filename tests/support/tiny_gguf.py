"""Tiny random models as quantised GGUF files."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import gguf
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel

from draftwerk.model.checkpoint import gguf as gguf_file
from draftwerk.model.checkpoint.architectures import ARCHITECTURES
from draftwerk.model.checkpoint.gguf_card import GgufCard
from tests.support.gguf_files import finish
from tests.support.gguf_of_gemma4 import add_gemma4_fields, converted_gemma4
from tests.support.gguf_of_hybrids import add_fields, converted, has_offset, names_of
from tests.support.stored_blocks import stored
from tests.support.tiny_models import VOCAB, tiny_model

PERMUTED = (
    *("llama", "smollm3", "granite", "ministral3", "arcee", "mixtral", "granitemoe"),
    *("granitemoeshared", "granitemoehybrid"),
)
"""Families whose query and key rows llama.cpp's converter has in its own order."""
SIZES = {"hidden_size": 64, "intermediate_size": 96, "head_dim": 16}
"""Whole blocks of 32."""
OWN_SIZES = {
    "granitemoeshared": {"shared_intermediate_size": 64},
    "gemma4_text": {"global_head_dim": 32, "hidden_size_per_layer_input": 32},
}
"""So have families that say more of them."""
PLAIN: Mapping[str, str] = MappingProxyType({})


PATTERNS = {"gemma3_text": 6, "cohere2": 4}
"""What no file says."""
NARROW = {"hidden_size": 32, "intermediate_size": 48, "head_dim": 8, "rms_norm_eps": 1e-5}


def said_by_files(family: str, changes: dict[str, Any]) -> dict[str, Any]:
    """Return settings of a model of which a file can say everything."""
    if period := PATTERNS.get(family):
        changes = {"sliding_window_pattern": period, "num_hidden_layers": period + 1}
    if family == "gpt_oss":  # no file says its limit
        changes = changes | {"swiglu_limit": 7.0}
    if family.startswith("gemma"):
        changes = changes | {"query_pre_attn_scalar": 8}
    if family == "smollm3":
        changes = {"no_rope_layers": None, "num_hidden_layers": 5}
    if family.startswith("qwen3_5") or family == "qwen3_next":
        # With less, rounding is amplified beyond what is compared.
        changes = {"rms_norm_eps": 0.01, "tie_word_embeddings": False} | changes
    return NARROW | OWN_SIZES.get(family, {}) | {"tie_word_embeddings": True} | changes


def save_gguf(
    path: Path,
    family: str,
    kind: str,
    kinds: Mapping[str, str] = PLAIN,
    seed: int = 0,
    more: Callable[[gguf.GGUFWriter], None] = lambda writer: None,
    fuses: bool = False,
    architecture: str = "",
    parts: int = 0,
    **sizes: Any,
) -> Path:
    """Write a model whose matrices are of one type, or as named by GGUF's names of tensors.

    `more` adds fields and tensors of its own. With `fuses` gates and ups of all experts are one,
    with `parts` so many tensors are in a file.
    """
    usual = {"tie_word_embeddings": True, **SIZES, **OWN_SIZES.get(family, {})}
    model = tiny_model(family, seed, **{**usual, **sizes})
    config = model.config
    row = next(row for row in ARCHITECTURES if row.model_type == family)
    assert row.gguf is not None
    writer = gguf.GGUFWriter(path, architecture or row.gguf.name, split_max_tensors=parts)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q4_K_M)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(512)
    writer.add_embedding_length(config.hidden_size)
    adjusted = dict(model.named_parameters()).get("model.layers.0.feed_forward.w1.weight")
    writer.add_feed_forward_length(config.intermediate_size if adjusted is None else len(adjusted))
    writer.add_head_count(config.num_attention_heads)
    if family != "gemma4_text":
        writer.add_head_count_kv(kv_heads_of(config))
        writer.add_key_length(config.head_dim)
    if row.norm_eps in ("layer_norm_eps", "norm_epsilon") or family == "nemotron":
        writer.add_layer_norm_eps(getattr(config, row.norm_eps))
    else:
        writer.add_layer_norm_rms_eps(getattr(config, row.norm_eps))
    add_own_fields(writer, family, config)
    writer.add_vocab_size(VOCAB)
    writer.add_tokenizer_model("none")
    writer.add_token_list([f"t{index}" for index in range(VOCAB)])
    writer.add_eos_token_id(2)
    kept = ("expert_bias", "layer_scalar")
    biases = {name: each for name, each in model.named_buffers() if name.endswith(kept)}
    for name, tensor in with_stacked_norms({**dict(model.named_parameters()), **biases}).items():
        is_rounded = kind == "F32" and name not in biases
        rounded = tensor.bfloat16().float() if is_rounded else tensor
        own = converted(name, rounded.detach(), config, family)
        if family == "gemma4_text":
            own = converted_gemma4(name, rounded.detach())
        if own is not None:
            for inner, each in own.items():
                named = f"blk.{name.split('.')[2]}.{inner}"
                _add(writer, named, each.contiguous().numpy(), kinds.get(_kind_of(named), kind))
            continue
        if "shared_expert_gate" in name:
            tensor = tensor.squeeze(0)
        if ".conv.conv." in name:
            tensor = tensor.squeeze(1)
        if "mlp.experts" in name or "moe.experts" in name or tensor.ndim == 3:
            rounded = tensor.bfloat16().float() if kind == "F32" else tensor
            for named, values in stacked_experts(name, rounded.detach().numpy(), family, fuses):
                _add(writer, named, values, kinds.get(_kind_of(named), kind))
            continue
        # As it is read where it is not served as it is.
        if is_rounded and not has_offset(name, family):
            tensor = tensor.bfloat16().float()
        values, named = tensor.detach().numpy(), gguf_name(name, row.gguf.name)
        if family in PERMUTED and ("q_proj" in name or "k_proj" in name):
            heads = config.num_attention_heads if "q_proj" in name else config.num_key_value_heads
            values = llama_cpp_order(values, heads)
        if has_offset(name, family):
            values = values + np.float32(1)
        _add(writer, named, values, kinds.get(_kind_of(named), kind))
    more(writer)
    finish(writer)
    return path


def described(path: Path, directory: Path) -> GgufCard:
    """Return the card of a file, whose config is written to a directory. Raises Refused."""
    directory.mkdir(exist_ok=True)
    return gguf_file.describe(path, "m", directory, lambda _: None)


def as_in_file(model: PreTrainedModel, family: str) -> PreTrainedModel:
    """Return a model with its parameters rounded as those of a file are that is not quantised."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if not has_offset(name, family):
                parameter.copy_(parameter.bfloat16())
    return model


def kv_heads_of(config: Any) -> int | list[int]:
    """Return the count, or where some layers do not attend one for each."""
    heads, types = config.num_key_value_heads, getattr(config, "layer_types", None) or ()
    if getattr(config, "mamba_n_heads", None):
        return [0 if kind == "linear_attention" else heads for kind in types]
    return [0 if kind == "conv" else heads for kind in types] if "conv" in types else heads


def add_own_fields(writer: gguf.GGUFWriter, family: str, config: Any) -> None:
    """Write what llama.cpp's converters write for a family beside what all have."""
    if getattr(config, "num_local_experts", 0) or getattr(config, "num_experts", 0):
        writer.add_expert_count(getattr(config, "num_local_experts", 0) or config.num_experts)
        used = getattr(config, "num_experts_per_tok", 0) or config.top_k_experts
        writer.add_expert_used_count(used)
        size = getattr(config, "moe_intermediate_size", config.intermediate_size)
        writer.add_expert_feed_forward_length(size)
    if family == "qwen2_moe":
        writer.add_expert_shared_feed_forward_length(config.shared_expert_intermediate_size)
    if family == "granitemoeshared":
        writer.add_expert_shared_feed_forward_length(config.shared_intermediate_size)
    add_fields(writer, family, config)
    if family == "gemma4_text":
        return add_gemma4_fields(writer, config)
    if family in ("granite", "granitemoe", "granitemoeshared", "granitemoehybrid"):
        writer.add_embedding_scale(config.embedding_multiplier)
        writer.add_residual_scale(config.residual_multiplier)
        writer.add_attention_scale(config.attention_multiplier)
        writer.add_logit_scale(config.logits_scaling)
    if family in ("cohere", "cohere2"):
        writer.add_logit_scale(config.logit_scale)
        writer.add_rope_dimension_count(config.head_dim)
    if family == "gemma2":
        writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
        writer.add_final_logit_softcapping(config.final_logit_softcapping)
    if family == "lfm2_moe":
        writer.add_leading_dense_block_count(config.num_dense_layers)
        writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
        writer.add_expert_weights_scale(config.routed_scaling_factor)
    if family.startswith("lfm2"):
        writer.add_shortconv_l_cache(config.conv_L_cache)
    rope = config.rope_parameters
    rule = rope.get("full_attention", rope)
    writer.add_rope_freq_base(rule["rope_theta"])
    if "partial_rotary_factor" in rule:
        writer.add_rope_dimension_count(int(config.head_dim * rule["partial_rotary_factor"]))
    if rule["rope_type"] == "longrope":
        writer.add_rope_scaling_orig_ctx_len(rule["original_max_position_embeddings"])
        for which in ("long", "short"):
            factors = np.array(rule[f"{which}_factor"], np.float32)
            writer.add_tensor(f"rope_factors_{which}.weight", factors)
    if family == "ministral3":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(rule["factor"])
        writer.add_rope_scaling_orig_ctx_len(rule["original_max_position_embeddings"])
        writer.add_rope_scaling_yarn_beta_fast(rule["beta_fast"])
        writer.add_rope_scaling_yarn_beta_slow(rule["beta_slow"])
        writer.add_rope_scaling_yarn_log_mul(rule["mscale_all_dim"])
        writer.add_attn_temperature_scale(rule["llama_4_scaling_beta"])
    if family == "gpt_oss" and rule["rope_type"] == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(rule["factor"])
        writer.add_rope_scaling_orig_ctx_len(rule["original_max_position_embeddings"])
    if family == "hunyuan_v1_dense":
        size = config.head_dim
        writer.add_rope_freq_base(rule["rope_theta"] * rule["alpha"] ** (size / (size - 2)))
    if getattr(config, "sliding_window", None) and family not in ("qwen2", "qwen3", "llama"):
        writer.add_sliding_window(config.sliding_window)
    if family in ("olmo3", "exaone4"):
        slides = [kind == "sliding_attention" for kind in config.layer_types]
        writer.add_sliding_window_pattern(slides)


def with_stacked_norms(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return tensors with the norms of each head in one, as llama.cpp's converter has them."""
    found: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        prefix, mark, rest = name.partition(".norms.")
        if not mark:
            found[name] = tensor
        elif rest == "0.weight":
            own = [each for other, each in tensors.items() if other.startswith(prefix + mark)]
            found[f"{prefix}.weight"] = torch.stack(own)
    return found


def stacked_experts(
    name: str, values: NDArray[np.float32], family: str, fuses: bool
) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Yield the matrices or biases of all experts as llama.cpp's converter writes them."""
    block, kind = f"blk.{name.split('.')[2]}.", "bias" if name.endswith("bias") else "weight"
    alternate = family == "gpt_oss"
    if alternate and kind == "weight":
        values = values.swapaxes(1, 2)
    if "gate_up" in name or "input" in name:
        gate, up = (values[:, ::2], values[:, 1::2]) if alternate else np.split(values, 2, axis=1)
        if fuses:
            yield f"{block}ffn_gate_up_exps.{kind}", np.concatenate([gate, up], axis=1)
            return
        yield f"{block}ffn_gate_exps.{kind}", np.ascontiguousarray(gate)
        yield f"{block}ffn_up_exps.{kind}", np.ascontiguousarray(up)
    else:
        yield f"{block}ffn_down_exps.{kind}", np.ascontiguousarray(values)


def _kind_of(name: str) -> str:
    return name.split(".")[-2]


def _add(writer: gguf.GGUFWriter, name: str, values: NDArray[np.float32], kind: str) -> None:
    kept = ("ffn_gate_inp", "norm", "shortconv.conv", ".bias", "ssm_conv1d")
    is_kept = any(each in name for each in kept) or name.endswith(("ssm_a", "ssm_d"))
    if values.ndim == 1 or is_kept:
        writer.add_tensor(name, values)
        return
    wanted = gguf.GGMLQuantizationType[kind]
    if kind.endswith("_K"):  # which the library does not quantise to
        data = stored(torch.from_numpy(values.reshape(-1, values.shape[-1])), kind).data
        data = data.reshape(*values.shape[:-1], -1)
    else:
        data = gguf.quants.quantize(values, wanted)
    writer.add_tensor(name, data, raw_dtype=wanted)


def llama_cpp_order(values: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """Return the rows of a query or key projection as llama.cpp has them."""
    halves = values.reshape(heads, 2, values.shape[0] // heads // 2, *values.shape[1:])
    return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(values.shape)


def gguf_name(name: str, architecture: str = "qwen3") -> str:
    """Translate a tensor's name from Transformers, by llama.cpp's own table."""
    named = gguf.MODEL_ARCH_NAMES
    named_so = name.replace("moe.router", "moe.router.layer").replace("sinks", "sinks.weight")
    named_so = named_so.replace("expert_bias", "expert_bias.bias")
    named_so = named_so.replace("layer_scalar", "layer_scalar.weight")
    stem, kind = named_so.rsplit(".", 1)
    arch = next(key for key, value in named.items() if value == architecture)
    return f"{names_of(arch, 9).get_name(stem)}.{kind}"
