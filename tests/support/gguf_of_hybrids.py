"""Tensors of hybrid families as llama.cpp's converter writes them."""

from functools import cache
from typing import Any

import gguf
import torch
from torch import Tensor

FAMILIES = ("qwen3_5_text", "qwen3_5_moe_text", "qwen3_next", "granitemoehybrid")
Converted = dict[str, Tensor]
"""By the names within a layer."""
names_of = cache(gguf.get_tensor_name_map)
"""By architecture and count of layers; a table takes milliseconds to make."""


def converted(name: str, tensor: Tensor, config: Any, family: str) -> Converted | None:
    """Return what a tensor of Transformers becomes; None for one that is as in other families."""
    own = name.split(".", 3)[-1]
    if family in ("granitemoehybrid", "granitemoeshared"):
        return _of_granite(own, tensor, config)
    if family not in FAMILIES or not own.startswith("linear_attn."):
        return None
    return _of_qwen(own.removeprefix("linear_attn."), tensor, config, family != "qwen3_next")


def has_offset(name: str, family: str) -> bool:
    """Whether a file has one more than the norm's weights."""
    is_qwen = family in FAMILIES[:3] and "linear_attn" not in name
    is_other = family.startswith(("gemma", "nemotron")) and family != "gemma4_text"
    return name.endswith("norm.weight") and (is_qwen or is_other)


def _of_granite(own: str, tensor: Tensor, config: Any) -> Converted | None:
    suffix = "_shexp" if config.num_local_experts else ""
    groups = getattr(config, "mamba_n_groups", 0)
    match own.removeprefix("mamba."):
        case "shared_mlp.input_linear.weight":
            gate, up = tensor.chunk(2)
            return {f"ffn_gate{suffix}.weight": gate, f"ffn_up{suffix}.weight": up}
        case "shared_mlp.output_linear.weight":
            return {f"ffn_down{suffix}.weight": tensor}
        case "A_log":
            return {"ssm_a": -tensor.exp()[:, None]}
        case "D":
            return {"ssm_d": tensor[:, None]}
        case "norm.weight":
            return {"ssm_norm.weight": tensor.view(groups, -1)}
        case _:
            return _of_both(own.removeprefix("mamba."), tensor)


def _of_both(own: str, tensor: Tensor) -> Converted | None:
    match own:
        case "dt_bias":
            return {"ssm_dt.bias": tensor}
        case "conv1d.weight":
            return {"ssm_conv1d.weight": tensor.squeeze(1)}
        case _:
            return None


def _of_qwen(own: str, tensor: Tensor, config: Any, in_turns: bool) -> Converted | None:
    """Value heads of one key head lie apart in Qwen3.5's files, and not in Qwen3-Next's."""
    keys, values = config.linear_num_key_heads, config.linear_num_value_heads
    width = 2 * keys * config.linear_key_head_dim

    def turned(rows: Tensor) -> Tensor:
        heads = rows.unflatten(0, (keys, values // keys, -1))
        return heads.transpose(0, 1).flatten(0, 2) if in_turns else rows

    if own == "A_log":
        return {"ssm_a": turned(-tensor.exp())}
    if own == "out_proj.weight":
        return {"ssm_out.weight": turned(tensor.T).T}
    if own == "in_proj_qkvz.weight":
        return _apart(tensor, config)
    if own in ("in_proj_qkv.weight", "conv1d.weight"):
        tensor = torch.cat([tensor[:width], turned(tensor[width:])])
    elif own in ("in_proj_z.weight", "in_proj_b.weight", "in_proj_a.weight", "dt_bias"):
        tensor = turned(tensor)
    stem = names_of(gguf.MODEL_ARCH.QWEN35, 1).get_name(
        f"model.layers.0.linear_attn.{own.removesuffix('.weight')}"
    )
    found = _of_both(own, tensor)
    return {f"{stem.removeprefix('blk.0.')}.weight": tensor} if found is None and stem else found


def _apart(tensor: Tensor, config: Any) -> Converted:
    size, group = config.linear_key_head_dim, config.linear_num_value_heads
    group = group // config.linear_num_key_heads * config.linear_value_head_dim
    heads = tensor.unflatten(0, (config.linear_num_key_heads, -1))
    parts = [part.flatten(0, 1) for part in heads.split([size, size, group, group], dim=1)]
    return {"attn_qkv.weight": torch.cat(parts[:3]), "attn_gate.weight": parts[3]}


def add_fields(writer: gguf.GGUFWriter, family: str, config: Any) -> None:
    """Write the metadata of recurrent layers."""
    if family == "granitemoehybrid":
        writer.add_ssm_conv_kernel(config.mamba_d_conv)
        writer.add_ssm_state_size(config.mamba_d_state)
        writer.add_ssm_group_count(config.mamba_n_groups)
        writer.add_ssm_inner_size(config.mamba_expand * config.hidden_size)
        writer.add_ssm_time_step_rank(config.mamba_n_heads)
        writer.add_rope_scaling_finetuned(config.position_embedding_type == "rope")
        writer.add_expert_shared_feed_forward_length(config.shared_intermediate_size)
    elif family in FAMILIES:
        heads = config.linear_num_value_heads
        writer.add_ssm_conv_kernel(config.linear_conv_kernel_dim)
        writer.add_ssm_state_size(config.linear_key_head_dim)
        writer.add_ssm_group_count(config.linear_num_key_heads)
        writer.add_ssm_time_step_rank(heads)
        writer.add_ssm_inner_size(config.linear_value_head_dim * heads)
        if family != "qwen3_next":
            # Angles by time, height and width in turns, which for text are one position.
            angles = int(config.head_dim * config.rope_parameters["partial_rotary_factor"]) // 2
            sections = [(angles + turn) // 3 for turn in (2, 1, 0)]
            writer.add_rope_dimension_sections([*sections, 0])
        writer.add_full_attention_interval(1 + config.layer_types.index("full_attention"))
        if getattr(config, "shared_expert_intermediate_size", None):
            writer.add_expert_shared_feed_forward_length(config.shared_expert_intermediate_size)
