"""LFM2: most of its layers convolve, each token with the few before it; the others attend."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from draftwerk.model.checkpoint.config import Experts, LayerKind
from draftwerk.model.checkpoint.families.architecture import (
    Architecture,
    GgufNames,
    Json,
    TensorNames,
    count_of,
    counted,
    number,
)
from draftwerk.model.checkpoint.families.experts import SIZE, USED, experts_of, gguf_experts
from draftwerk.model.checkpoint.families.windows import FULL, checked_types
from draftwerk.model.checkpoint.keys.known_keys import KnownKeys
from draftwerk.model.checkpoint.unsupported import Refused

CONV = "conv"
NORMALISES = ".expert_weights_norm"
KERNEL_SIZE = ".shortconv.l_cache"
KERNEL_SIZE_MAX = 8
SIGMOID = 2
"""As a GGUF calls its scores."""


def _kernel_size(hf: Json) -> int:
    """Return how many tokens a convolution sees. Raises Refused."""
    return counted("conv_L_cache", hf.get("conv_L_cache"), most=KERNEL_SIZE_MAX)


def _layers(hf: Json) -> Sequence[LayerKind]:
    types = checked_types(hf, _layer_types(hf), (FULL, CONV))
    return [LayerKind(mixer="convolution" if kind == CONV else "attention") for kind in types]


def _layer_types(hf: Json) -> list[str]:
    """Return the kinds by name; in old configs the layers that attend are numbered."""
    types, attending = hf.get("layer_types"), hf.get("full_attn_idxs")
    if not isinstance(types, list | None) or not isinstance(attending, list | None):
        raise Refused(f"layer_types {types!r} or full_attn_idxs {attending!r} is no list")
    if types is not None:
        return types
    every = range(hf["num_hidden_layers"])
    return [FULL if attending is None or index in attending else CONV for index in every]


def _rewritten(hf: Json) -> Json:
    """Return the FFN's size as it is, and what fields of old configs are called now."""
    found: dict[str, Any] = {}
    if (tied := hf.get("tie_embedding")) is not None:
        if not isinstance(tied, bool):
            raise Refused(f"tie_embedding {tied!r} is neither true nor false")
        found["tie_word_embeddings"] = tied
    if hf.get("block_ff_dim") is not None:
        size = count_of(hf, "block_ff_dim")
        found |= {"intermediate_size": size, "block_ff_dim": None}
    size = found.get("intermediate_size", hf.get("intermediate_size"))
    if isinstance(size, int) and hf.get("block_auto_adjust_ff_dim"):
        found |= {"intermediate_size": _adjusted(hf, size), "block_auto_adjust_ff_dim": False}
    return found


def _adjusted(hf: Json, size: int) -> int:
    """Return two thirds of a size, times a factor, in whole multiples."""
    size = int(2 * size / 3)
    if hf.get("block_ffn_dim_multiplier") is None:
        return size
    multiple = count_of(hf, "block_multiple_of")
    return -(-int(number(hf, "block_ffn_dim_multiplier") * size) // multiple) * multiple


def _gguf_fields(get: Callable[..., Any]) -> Json:
    heads = get(".attention.head_count_kv")
    heads = heads if isinstance(heads, list) else [heads] * get(".block_count")
    return {
        "layer_types": [FULL if count else CONV for count in heads],
        "conv_L_cache": get(KERNEL_SIZE),
        "block_auto_adjust_ff_dim": False,
    }


def _gguf_expert_fields(get: Callable[..., Any]) -> Json:
    if (scores := get(".expert_gating_func", SIGMOID)) != SIGMOID:
        raise Refused(f"lfm2moe.expert_gating_func {scores!r} is not supported (only {SIGMOID})")
    if not isinstance(normalises := get(NORMALISES, True), bool):
        raise Refused(f"lfm2moe{NORMALISES} {normalises!r} is neither true nor false")
    return {
        **_gguf_fields(get),
        **gguf_experts(get),
        "num_dense_layers": get(".leading_dense_block_count"),
        "norm_topk_prob": normalises,
        "routed_scaling_factor": get(".expert_weights_scale", 1.0),
    }


def _first_dense(hf: Json) -> Sequence[LayerKind]:
    """Return the layers, of which the first have no experts."""
    dense = count_of(hf, "num_dense_layers", least=0)
    return [replace(kind, has_experts=at >= dense) for at, kind in enumerate(_layers(hf))]


def _experts(hf: Json) -> Experts:
    return replace(
        COUNTED(hf),
        scores="sigmoid",
        has_choice_bias=bool(hf.get("use_expert_bias")),
        weight_scale=number(hf, "routed_scaling_factor"),
    )


COUNTED = experts_of("num_experts", size="moe_intermediate_size", normalises="norm_topk_prob")
NAMES = TensorNames(
    attention_norm="operator_norm",
    ffn_norm="ffn_norm",
    query_norm="self_attn.q_layernorm",
    key_norm="self_attn.k_layernorm",
    output="self_attn.out_proj",
    gate_up=("feed_forward.w1", "feed_forward.w3"),
    down="feed_forward.w2",
    last_norm="model.embedding_norm",
)
EXPERTS = NAMES._replace(
    router="feed_forward.gate",
    choice_bias="feed_forward.expert_bias",
    expert_gate_up=("feed_forward.experts.{}.w1", "feed_forward.experts.{}.w3"),
    expert_down="feed_forward.experts.{}.w2",
)
OLD_KEYS = KnownKeys(
    frozenset({"block_ff_dim", "tie_embedding", "full_attn_idxs"}),
    only=dict.fromkeys(("block_use_swiglu", "use_pos_enc"), (True,)),
)
_DENSE = Architecture(
    hf_name="Lfm2ForCausalLM",
    model_type="lfm2",
    summary="convolutions in most layers",
    gguf=GgufNames(
        "lfm2", fields=_gguf_fields, required=(KERNEL_SIZE,), last_norm="token_embd_norm"
    ),
    names=NAMES,
    keys=OLD_KEYS,
    rewritten=_rewritten,
    norm_eps="norm_eps",
    query_key_norm=lambda _: True,
    convolution_bias="conv_bias",
    kernel_size=_kernel_size,
    layers=_layers,
)
ROWS = (
    _DENSE,
    dataclasses.replace(
        _DENSE,
        hf_name="Lfm2MoeForCausalLM",
        model_type="lfm2_moe",
        gguf=GgufNames(
            "lfm2moe",
            fields=_gguf_expert_fields,
            required=(KERNEL_SIZE, USED, SIZE, ".leading_dense_block_count"),
            last_norm="token_embd_norm",
        ),
        summary="convolutions in most layers; experts but in the first",
        names=EXPERTS,
        keys=OLD_KEYS._replace(read=frozenset({"tie_embedding"})),
        experts=_experts,
        layers=_first_dense,
    ),
)
