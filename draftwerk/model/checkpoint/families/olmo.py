"""Families that norm what a layer adds, not what it reads: OLMo 2 and 3, EXAONE 4."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from draftwerk.model.checkpoint.config import Graph, LayerKind
from draftwerk.model.checkpoint.families.architecture import (
    BIASED,
    Architecture,
    GgufNames,
    Json,
    TensorNames,
    all_alike,
)
from draftwerk.model.checkpoint.families.windows import every, gguf_windows, layer_types, sliding

AFTER = TensorNames(
    attention_norm=None,
    after_attention="post_attention_layernorm",
    ffn_norm=None,
    after_ffn="post_feedforward_layernorm",
)
WINDOW = ".attention.sliding_window"


def _local(hf: Json) -> Sequence[LayerKind]:
    """Return EXAONE's layers: beside some with a window those without one have no rotation."""
    if hf.get("sliding_window") is None:
        layer_types(hf, lambda _: ())  # refuses those that slide
        return all_alike(hf)
    return sliding(every(4, "sliding_window_pattern"), full_rotary=-1)(hf)


def _gguf_fields(get: Callable[..., Any]) -> Json:
    """Return the fields; one number is for layers with a window, and without."""
    return {**gguf_windows(get), "rope_local_base_freq": get(".rope.freq_base", 10_000.0)}


OLMO = Graph(norm="rms_rounded_once", head_norm="projection", rotary_rounding="result")
_OLMO = Architecture(
    hf_name="Olmo2ForCausalLM",
    model_type="olmo2",
    summary="norms of what layers add; of all heads together",
    gguf=GgufNames("olmo2", is_for=lambda get: not get(WINDOW)),
    names=AFTER,
    query_key_norm=lambda _: True,
    **BIASED,
    graph=lambda _: OLMO,
)
ROWS = (
    _OLMO,
    replace(
        _OLMO,
        hf_name="Olmo3ForCausalLM",
        model_type="olmo3",
        summary="as OLMo 2; some with a window",
        gguf=GgufNames("olmo2", is_for=lambda get: bool(get(WINDOW)), fields=_gguf_fields),
        layers=sliding(every(4), local_rotary=1),
    ),
    Architecture(
        hf_name="Exaone4ForCausalLM",
        model_type="exaone4",
        summary="norms of what layers add; some with a window, the others without rotation",
        gguf=GgufNames("exaone4", fields=gguf_windows),
        names=AFTER,
        query_key_norm=lambda _: True,
        layers=_local,
    ),
)
