"""Gemma 2 and 3: norms around what a layer adds, 1 + w in norms, embeddings times sqrt(hidden)."""

import dataclasses
from collections.abc import Callable, Sequence
from math import sqrt
from typing import Any

from msgspec.structs import replace

from draftwerk.model.checkpoint.config import Graph, LayerKind
from draftwerk.model.checkpoint.families.architecture import (
    BIASED,
    Architecture,
    GgufNames,
    Json,
    TensorNames,
    count_of,
    number,
)
from draftwerk.model.checkpoint.families.windows import every, gguf_windows, sliding
from draftwerk.model.checkpoint.keys.known_keys import KnownKeys, because
from draftwerk.model.checkpoint.unsupported import Refused

AROUND = TensorNames(
    after_attention="post_attention_layernorm",
    ffn_norm="pre_feedforward_layernorm",
    after_ffn="post_feedforward_layernorm",
)
GELU = KnownKeys(without_effect=because("hidden_activation says it", "hidden_act"))
LARGEST = {46: 144, 62: 168}
"""The 27B models' numbers, by their layers: what scales scores where the metadata do not say."""


BOTH_WAYS, FOR_VECTORS = "use_bidirectional_attention", "gemma-embedding"


def _plain(hf: Json) -> Graph:
    if _both_ways(hf) and hf["model_type"] != "gemma3_text":
        raise Refused(f"{BOTH_WAYS} is not supported")
    return Graph(
        norm="rms_rounded_once",
        embedding_multiplier=sqrt(hf["hidden_size"]),
        rounds_embedding_multiplier=True,
    )


def _both_ways(hf: Json) -> bool:
    """Return whether tokens see those behind them too."""
    if not isinstance(found := hf.get(BOTH_WAYS), bool | None):
        raise Refused(f"{BOTH_WAYS} {found!r} is neither true nor false")
    return bool(found)


def _local_layers(hf: Json) -> Sequence[LayerKind]:
    """Return Gemma 3's layers; a window that reaches both ways is as wide in all."""
    if _both_ways(hf) and hf.get("sliding_window") is not None:
        hf = {**hf, "sliding_window": count_of(hf, "sliding_window") // 2 + 1}
    return sliding(every(6, "sliding_window_pattern"), local_rotary=1)(hf)


def _graph(hf: Json) -> Graph:
    return replace(_plain(hf), attention_scale=number(hf, "query_pre_attn_scalar") ** -0.5)


def _capped(hf: Json) -> Graph:
    caps = {
        name: number(hf, field) if hf[field] is not None else 0.0
        for name, field in (
            ("attention_softcap", "attn_logit_softcapping"),
            ("logit_softcap", "final_logit_softcapping"),
        )
    }
    return replace(_graph(hf), **caps)


def _uncapped(hf: Json) -> Graph:
    if hf.get("final_logit_softcapping"):
        raise Refused(f"final_logit_softcapping {hf['final_logit_softcapping']} is not supported")
    return _graph(hf)


def _fields(get: Callable[..., Any]) -> dict[str, Any]:
    head_size = get(".attention.key_length")
    if head_size is None:
        head_size = get(".embedding_length") // get(".attention.head_count")
    return gguf_windows(get) | {
        "query_pre_attn_scalar": LARGEST.get(get(".block_count"), head_size),
    }


def _capped_fields(get: Callable[..., Any]) -> dict[str, Any]:
    return _fields(get) | {
        # Old files do not say it, nor does llama.cpp ask for it.
        "sliding_window": get(".attention.sliding_window", 4096),
        "attn_logit_softcapping": get(".attn_logit_softcapping", 50.0),
        "final_logit_softcapping": get(".final_logit_softcapping", 30.0),
    }


def _local_fields(get: Callable[..., Any]) -> dict[str, Any]:
    both_ways = get("general.architecture") == FOR_VECTORS  # whether it says so again or not
    return (
        _fields(get)
        | ({BOTH_WAYS: True, "is_causal": None} if both_ways else {})
        | {
            "rope_theta": get(".rope.freq_base", get(".rope.global.freq_base", 1_000_000.0)),
            "rope_local_base_freq": get(
                ".rope.freq_base_swa", get(".rope.local.freq_base", 10_000.0)
            ),
        }
    )


_SECOND = Architecture(
    hf_name="Gemma2ForCausalLM",
    model_type="gemma2",
    summary="norms around; soft caps; every other with a window",
    gguf=GgufNames("gemma2", fields=_capped_fields),
    names=AROUND,
    keys=GELU,
    norm_offset=1,
    activation="hidden_activation",
    **BIASED,
    graph=_capped,
    layers=sliding(every(2)),
)
ROWS = (
    Architecture(
        hf_name="GemmaForCausalLM",
        model_type="gemma",
        summary="1 + w in norms; GELU; embeddings times sqrt(hidden)",
        gguf=GgufNames("gemma"),
        keys=KnownKeys(only={"hidden_activation": ("gelu_pytorch_tanh",)}),
        norm_offset=1,
        activation="hidden_act",
        **BIASED,
        graph=_plain,
    ),
    _SECOND,
    dataclasses.replace(
        _SECOND,
        hf_name="VaultGemmaForCausalLM",
        model_type="vaultgemma",
        summary="soft caps; every other with a window",
        gguf=None,
        names=TensorNames(ffn_norm="pre_feedforward_layernorm"),
    ),
    Architecture(
        hf_name="Gemma3ForCausalLM",
        model_type="gemma3_text",
        summary="norms around; five of six with a window and a rotary of their own",
        gguf=GgufNames("gemma3", FOR_VECTORS, fields=_local_fields),
        names=AROUND,
        keys=GELU._replace(
            read=frozenset({"sliding_window_pattern", "rope_local_base_freq"}),
        ),
        norm_offset=1,
        activation="hidden_activation",
        query_key_norm=lambda _: True,
        **BIASED,
        graph=_uncapped,
        layers=_local_layers,
        sees_all=_both_ways,
        wrappers=("Gemma3ForConditionalGeneration",),
    ),
)
