"""Granite, dense and of experts, and HyperCLOVA X, which has its multipliers."""

import dataclasses
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from draftwerk.model.checkpoint.config import Graph
from draftwerk.model.checkpoint.families.architecture import (
    BIASED,
    Architecture,
    GgufNames,
    Json,
    TensorNames,
    all_alike,
    counted,
    number,
)
from draftwerk.model.checkpoint.families.experts import (
    SHARED_SIZE,
    USED,
    everywhere,
    experts_of,
    gguf_experts,
    routed,
)
from draftwerk.model.checkpoint.unsupported import Refused


def granite_graph(hf: Json) -> Graph:
    """Return the graph of Granite's multipliers."""
    return Graph(
        embedding_multiplier=number(hf, "embedding_multiplier"),
        residual_multiplier=number(hf, "residual_multiplier"),
        attention_scale=number(hf, "attention_multiplier"),
        logit_scale=1.0 / number(hf, "logits_scaling"),
    )


def _multiplied_logits(hf: Json) -> Graph:
    """Return HyperCLOVA X's graph: Granite's, but logits are multiplied, and scores scaled as usual
    where nothing is said.
    """
    if not hf["use_post_norm"]:
        raise Refused("use_post_norm false: no norms of what layers add")
    graph = granite_graph({**hf, "attention_multiplier": hf["attention_multiplier"] or 0.0})
    return replace(graph, logit_scale=number(hf, "logits_scaling"))


def granite_fields(get: Callable[..., Any]) -> Json:
    """Return Granite's multipliers of a GGUF."""
    return {name: get(key, 1.0) for name, key in MULTIPLIER_KEYS.items()}


def written_multipliers(hf: Json) -> Json:
    """Return them as a GGUF's metadata."""
    return {key: float(hf[name]) for name, key in MULTIPLIER_KEYS.items()}


MULTIPLIER_KEYS = {
    "embedding_multiplier": ".embedding_scale",
    "residual_multiplier": ".residual_scale",
    "attention_multiplier": ".attention.scale",
    "logits_scaling": ".logit_scale",
}
"""Fields of a config, and a GGUF's metadata."""
GRANITE_EXPERTS = TensorNames(
    router="block_sparse_moe.router.layer",
    stacked_router="block_sparse_moe.router",
    expert_gate_up=("block_sparse_moe.input_linear",),
    expert_down="block_sparse_moe.output_linear",
    gate_up=("shared_mlp.input_linear",),
    down="shared_mlp.output_linear",
)
SHARED_IN_GGUF = GRANITE_EXPERTS._replace(
    gate_up=("shared_mlp.gate", "shared_mlp.up"),
    shared_gate_up=("shared_expert.gate", "shared_expert.up"),
    shared_down="shared_expert.down",
)
"""Files have an FFN of all tokens in three matrices."""


def _expert_fields(get: Callable[..., Any]) -> Json:
    return {**gguf_experts(get), **granite_fields(get)}


_MOE_GGUF = GgufNames(
    "granitemoe",
    pairs_are_neighbours=True,
    fields=_expert_fields,
    required=(USED,),
    keys=routed(),
    written=written_multipliers,
    is_for=lambda get: not get(SHARED_SIZE),
)
_MOE = Architecture(
    hf_name="GraniteMoeForCausalLM",
    model_type="granitemoe",
    summary="experts; multipliers as Granite's",
    gguf=_MOE_GGUF,
    names=GRANITE_EXPERTS,
    **BIASED,
    experts=experts_of("num_local_experts"),
    graph=granite_graph,
    layers=everywhere(all_alike),
)
ROWS = (
    Architecture(
        hf_name="GraniteForCausalLM",
        model_type="granite",
        summary="multipliers of embeddings, what layers add, scores and logits",
        gguf=GgufNames(
            "granite",
            pairs_are_neighbours=True,
            fields=granite_fields,
            written=written_multipliers,
        ),
        **BIASED,
        ffn_bias="mlp_bias",
        graph=granite_graph,
    ),
    Architecture(
        hf_name="HyperCLOVAXForCausalLM",
        model_type="hyperclovax",
        summary="multipliers as Granite's; norms of what layers add",
        names=TensorNames(after_attention="post_norm1", after_ffn="post_norm2"),
        **BIASED,
        ffn_bias="mlp_bias",
        graph=_multiplied_logits,
    ),
    _MOE,
    dataclasses.replace(
        _MOE,
        hf_name="GraniteMoeSharedForCausalLM",
        model_type="granitemoeshared",
        summary="experts, and one of all tokens; multipliers as Granite's",
        gguf=_MOE_GGUF._replace(
            fields=lambda get: {
                **_expert_fields(get),
                "shared_intermediate_size": counted(f"granitemoe{SHARED_SIZE}", get(SHARED_SIZE)),
            },
            is_for=lambda get: bool(get(SHARED_SIZE)),
            names=SHARED_IN_GGUF,
        ),
        experts=experts_of("num_local_experts", shared="shared_intermediate_size"),
    ),
)
