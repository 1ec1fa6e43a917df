"""Gemma 4: heads by kind of layer, layers that read others' keys, embeddings of each layer."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import sqrt
from typing import Any

from draftwerk.model.checkpoint.config import Graph, LayerKind
from draftwerk.model.checkpoint.families.architecture import (
    BIASED,
    Architecture,
    GgufNames,
    Json,
    count_of,
    counted,
    number,
)
from draftwerk.model.checkpoint.families.experts import SIZE, USED, experts_of
from draftwerk.model.checkpoint.families.gemma import AROUND, GELU
from draftwerk.model.checkpoint.families.windows import (
    FULL,
    SLIDING,
    every,
    gguf_windows,
    layer_types,
    window_of,
)
from draftwerk.model.checkpoint.unsupported import Refused

BY_LAYER = ("head_dim", "num_key_value_heads")
"""Fields that layers have of their own in `per_layer_config`."""
CAUSAL = (None, False, "vision")
"""Values by which tokens of a text see those before them alone."""
READS_TARGET = "reads_target"
"""Set for an assistant, none of whose layers has keys: its reader says whose they have."""


def _graph(hf: Json) -> Graph:
    if (both_ways := hf.get("use_bidirectional_attention")) not in CAUSAL:
        raise Refused(f"use_bidirectional_attention {both_ways!r} is not supported")
    if hf.get("enable_moe_block") and hf.get("use_double_wide_mlp"):
        raise Refused("enable_moe_block with use_double_wide_mlp is not supported")
    cap, size = hf["final_logit_softcapping"], hf.get("hidden_size_per_layer_input") or 0
    vocabulary = hf.get("vocab_size_per_layer_input", hf["vocab_size"])
    if size and vocabulary != hf["vocab_size"]:
        raise Refused(f"vocab_size_per_layer_input {vocabulary!r} contradicts vocab_size")
    return Graph(
        norm="rms_rounded_once",
        embedding_multiplier=sqrt(hf["hidden_size"]),
        rounds_embedding_multiplier=True,
        attention_scale=1.0,
        logit_softcap=0.0 if cap is None else number(hf, "final_logit_softcapping"),
        has_value_norm=True,
        has_layer_scalar=True,
        per_layer_size=counted("hidden_size_per_layer_input", size, least=0),
    )


def _layers(hf: Json) -> Sequence[LayerKind]:
    # Transformers has the last layer see everything whatever is written.
    types = [*layer_types(hf, every(6))[:-1], FULL]
    window = window_of(hf) if SLIDING in types else 0
    own = len(types) - count_of(hf, "num_kv_shared_layers", least=0)
    wide = 2 * hf["intermediate_size"] if hf.get("use_double_wide_mlp") else 0
    found: list[LayerKind] = []
    for index, kind in enumerate(types):
        is_full = kind == FULL
        heads = _heads(hf, index, is_full)
        found.append(
            LayerKind(
                window=0 if is_full else window,
                rotary=0 if is_full else 1,
                head_size=heads["head_dim"],
                kv_heads=heads["num_key_value_heads"],
                ffn_size=wide if index >= own else 0,
                kv_from=_source(hf, types[: max(own, 0)], kind) if index >= own else -1,
                keys_are_values=index < own and is_full and bool(hf.get("attention_k_eq_v")),
                has_experts=bool(hf.get("enable_moe_block")),
            )
        )
    return found


def _source(hf: Json, types: Sequence[str], kind: str) -> int:
    """Return the last layer of a kind that has keys and values of its own."""
    if hf.get(READS_TARGET):
        return 0
    if kind not in types:
        raise Refused(f"num_kv_shared_layers leaves no {kind} layer with keys of its own")
    return len(types) - 1 - list(types)[::-1].index(kind)


def _heads(hf: Json, index: int, is_full: bool) -> dict[str, int]:
    """Return the size of a layer's heads, and how many have keys."""
    usual = {name: hf[name] for name in BY_LAYER}
    if is_full and "per_layer_config" not in hf:
        usual["head_dim"] = hf.get("global_head_dim", 512)
        kv_heads = hf.get("num_global_key_value_heads")
        if kv_heads is not None and hf.get("attention_k_eq_v"):
            usual["num_key_value_heads"] = kv_heads
    layers: Any = hf.get("per_layer_config") or {}
    own: Any = layers.get(str(index), {}) if isinstance(layers, dict) else layers
    if not isinstance(own, dict) or not own.keys() <= set(BY_LAYER):
        raise Refused(f"per_layer_config {own!r} is not supported (only {', '.join(BY_LAYER)})")
    found = {name: counted(name, value) for name, value in (usual | own).items()}
    if hf["num_attention_heads"] % found["num_key_value_heads"]:
        raise Refused(
            f"num_attention_heads is no multiple of {found['num_key_value_heads']} KV heads"
        )
    if found["head_dim"] % 2:
        raise Refused(f"head_dim {found['head_dim']} is odd: rotary positions need pairs")
    return found


def _fields(get: Callable[..., Any]) -> Json:
    windows, layers = gguf_windows(get), get(".block_count")
    types = windows.get("layer_types")
    if not types or len(types) != layers or types[-1] != FULL:
        raise Refused("gemma4.attention.sliding_window_pattern does not end with a full layer")
    full = get(".attention.key_length")
    narrow = get(".attention.key_length_swa", full)
    for key in (".rope.dimension_count_swa", ".attention.value_length_swa"):
        if get(key, narrow) != narrow:
            raise Refused(f"gemma4{key} is not supported")
    name = ".attention.shared_kv_layers"
    shared = counted(f"gemma4{name}", get(name, 0), least=0, most=layers)
    kv_heads = _each(get(".attention.head_count_kv"), layers)
    sizes = _each(get(".feed_forward_length"), layers)
    factor = 2 if sizes[-1] == 2 * sizes[0] else 1
    if sizes != [sizes[0]] * (layers - shared) + [factor * sizes[0]] * shared:
        raise Refused(f"gemma4.feed_forward_length {sizes} is not supported")
    heads = [
        {"head_dim": full if kind == FULL else narrow, "num_key_value_heads": count}
        for kind, count in zip(types, kv_heads, strict=True)
    ]
    return windows | {
        "head_dim": narrow,
        "global_head_dim": full,
        "num_key_value_heads": kv_heads[0],
        "per_layer_config": {str(index): own for index, own in enumerate(heads)},
        "intermediate_size": sizes[0],
        "use_double_wide_mlp": factor == 2,
        "num_kv_shared_layers": shared,
        "vocab_size_per_layer_input": len(get("tokenizer.ggml.tokens")),
        "hidden_size_per_layer_input": get(".embedding_length_per_layer_input", 0),
        "final_logit_softcapping": get(".final_logit_softcapping"),
        "enable_moe_block": bool(get(".expert_count")),
        **(_gguf_experts(get) if get(".expert_count") else {}),
        "rope_parameters": {},
        "rope_local_base_freq": get(".rope.freq_base_swa", 10_000.0),
    }


def _gguf_experts(get: Callable[..., Any]) -> Json:
    return {
        "num_experts": get(".expert_count"),
        "top_k_experts": counted(f"gemma4{USED}", get(USED)),
        "moe_intermediate_size": counted(f"gemma4{SIZE}", get(SIZE)),
    }


def _each(value: Any, layers: int) -> list[Any]:
    """Return a value for each layer. Raises Refused for a list of another length."""
    found: list[Any] = value if isinstance(value, list) else [value] * layers
    if len(found) != layers:
        raise Refused(f"{len(found)} values stand for {layers} layers")
    return found


_read_experts = experts_of(
    "num_experts", used="top_k_experts", size="moe_intermediate_size", shared="intermediate_size"
)


GEMMA4 = Architecture(
    hf_name="Gemma4ForCausalLM",
    model_type="gemma4_text",
    summary="norms around; heads by kind of layer; keys of earlier layers; own embeddings",
    gguf=GgufNames("gemma4", fields=_fields, differs_by_layer=True),
    names=AROUND._replace(
        router="router.proj",
        expert_gate_up=("experts.gate_up_proj",),
        expert_down="experts.down_proj",
        expert_norm="pre_feedforward_layernorm_2",
        after_experts="post_feedforward_layernorm_2",
        after_dense="post_feedforward_layernorm_1",
        router_scale="router.scale",
        expert_scale="router.per_expert_scale",
    ),
    keys=GELU._replace(
        read=frozenset({"global_head_dim", "num_global_key_value_heads", "per_layer_config"})
    ),
    activation="hidden_activation",
    query_key_norm=lambda _: True,
    **BIASED,
    graph=_graph,
    layers=_layers,
    experts=lambda hf: _read_experts(hf) if hf.get("enable_moe_block") else None,
    has_assistant=True,
    wrappers=("Gemma4ForConditionalGeneration",),
)
ROWS = (
    GEMMA4,
    replace(
        GEMMA4,
        hf_name="Gemma4UnifiedForCausalLM",
        model_type="gemma4_unified_text",
        gguf=None,
        wrappers=("Gemma4UnifiedForConditionalGeneration",),
    ),
)
