"""The metadata of Gemma 4 as llama.cpp's converter writes them."""

from typing import Any

import gguf
import numpy as np
from torch import Tensor


def converted_gemma4(name: str, tensor: Tensor) -> dict[str, Tensor] | None:
    """Return what a tensor of experts becomes; None for one that is as in other families."""
    named = {
        "router.scale": "ffn_gate_inp.scale",
        "router.per_expert_scale": "ffn_down_exps.scale",
        "router.proj.weight": "ffn_gate_inp.weight",
        "experts.gate_up_proj": "ffn_gate_up_exps.weight",
        "experts.down_proj": "ffn_down_exps.weight",
    }
    inner = named.get(name.split(".", 3)[-1])
    return None if inner is None else {inner: tensor}


def add_gemma4_fields(writer: gguf.GGUFWriter, config: Any) -> None:
    slides = [kind == "sliding_attention" for kind in config.layer_types]
    layers = [config.per_layer_config[index] for index in range(len(slides))]
    full = next(own.head_dim for own, each in zip(layers, slides, strict=True) if not each)
    narrow = next(own.head_dim for own, each in zip(layers, slides, strict=True) if each)
    writer.add_sliding_window(config.sliding_window)
    writer.add_sliding_window_pattern(slides)
    writer.add_shared_kv_layers(config.num_kv_shared_layers)
    writer.add_embedding_length_per_layer_input(config.hidden_size_per_layer_input or 0)
    for add, size in (
        (writer.add_key_length, full),
        (writer.add_value_length, full),
        (writer.add_rope_dimension_count, full),
        (writer.add_key_length_swa, narrow),
        (writer.add_value_length_swa, narrow),
        (writer.add_rope_dimension_count_swa, narrow),
    ):
        add(size)
    writer.add_head_count_kv([own.num_key_value_heads for own in layers])
    if config.use_double_wide_mlp:
        own_keys = len(slides) - config.num_kv_shared_layers
        factors = [1 + (index >= own_keys) for index in range(len(slides))]
        writer.add_feed_forward_length([config.intermediate_size * each for each in factors])
    if config.final_logit_softcapping:
        writer.add_final_logit_softcapping(config.final_logit_softcapping)
    rules = config.rope_parameters
    writer.add_rope_freq_base(rules["full_attention"]["rope_theta"])
    writer.add_rope_freq_base_swa(rules["sliding_attention"]["rope_theta"])
    rotary_pairs = int(full * rules["full_attention"]["partial_rotary_factor"] / 2)
    divisors = np.array([1.0] * rotary_pairs + [1e30] * (full // 2 - rotary_pairs), np.float32)
    writer.add_tensor("rope_freqs.weight", divisors)
