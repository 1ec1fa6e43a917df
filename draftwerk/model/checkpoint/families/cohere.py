"""Families with LayerNorm: Cohere 1 and 2, StableLM, StarCoder 2, Nemotron."""

from dataclasses import replace

from draftwerk.model.checkpoint.config import Graph
from draftwerk.model.checkpoint.families.architecture import (
    BIASED,
    Architecture,
    GgufNames,
    Json,
    TensorNames,
    number,
)
from draftwerk.model.checkpoint.families.windows import (
    WINDOW,
    WINDOW_KEYS,
    alike_in_window,
    every,
    gguf_windows,
    sliding,
)
from draftwerk.model.checkpoint.keys.known_keys import KnownKeys, because
from draftwerk.model.checkpoint.unsupported import Refused


def _side_by_side(hf: Json) -> Graph:
    if hf.get("use_qk_norm"):
        raise Refused("use_qk_norm is not supported")
    return Graph(
        norm="layer",
        is_parallel=True,
        rotary_rounding="angles",
        logit_scale=number(hf, "logit_scale"),
    )


def _stable(hf: Json) -> Graph:
    if hf.get("use_parallel_residual"):
        raise Refused("use_parallel_residual is not supported")
    return Graph(norm="layer", head_norm="each" if hf.get("qk_layernorm") else "shared")


_COHERE = Architecture(
    hf_name="CohereForCausalLM",
    model_type="cohere",
    summary="LayerNorm; attention and FFN side by side",
    gguf=GgufNames(
        "command-r",
        pairs_are_neighbours=True,
        fields=lambda get: {"logit_scale": get(".logit_scale", 0.0625)},
    ),
    names=TensorNames(ffn_norm=None),
    norm_eps="layer_norm_eps",
    **BIASED,
    graph=_side_by_side,
    pairs_are_neighbours=True,
)
ROWS = (
    _COHERE,
    replace(
        _COHERE,
        hf_name="Cohere2ForCausalLM",
        model_type="cohere2",
        summary="LayerNorm; attention and FFN side by side; three of four with a window",
        gguf=GgufNames(
            "cohere2",
            pairs_are_neighbours=True,
            required=(WINDOW,),
            fields=lambda get: gguf_windows(get) | {"logit_scale": get(".logit_scale", 0.0625)},
        ),
        keys=KnownKeys(
            frozenset({"sliding_window_pattern"}),
            only={
                **dict.fromkeys(("use_embedding_sharing", "use_gated_activation"), (True,)),
                **{"use_parallel_block": (True,), "layer_switch": (4,), "rotary_pct": (1.0,)},
                "order_of_interleaved_layers": ("local_attn_first",),
                "position_embedding_type": ("rope_gptj",),
            },
        ),
        # Those without a window have no rotation.
        layers=sliding(every(4, "sliding_window_pattern"), full_rotary=-1),
    ),
    Architecture(
        hf_name="StableLmForCausalLM",
        model_type="stablelm",
        summary="LayerNorm; partial rotary",
        gguf=GgufNames(
            "stablelm",
            keys=KnownKeys(
                without_effect=because("a norm's tensor says it", ".use_parallel_residual")
            ),
        ),
        names=TensorNames(
            query_norm="self_attn.q_layernorm.norms.{}", key_norm="self_attn.k_layernorm.norms.{}"
        ),
        query_key_norm=lambda hf: bool(hf.get("qk_layernorm")),
        norm_eps="layer_norm_eps",
        has_norm_bias=True,
        qkv_bias="use_qkv_bias",
        graph=_stable,
    ),
    Architecture(
        hf_name="Starcoder2ForCausalLM",
        model_type="starcoder2",
        summary="LayerNorm; FFN without gates; window",
        gguf=GgufNames("starcoder2", fields=gguf_windows),
        names=TensorNames(gate_up=("mlp.c_fc",), down="mlp.c_proj"),
        keys=WINDOW_KEYS._replace(
            only={
                **{"mlp_type": ("default",), "norm_type": ("layer_norm",)},
                "scale_attn_weights": (True,),
            }
        ),
        norm_eps="norm_epsilon",
        has_norm_bias=True,
        qkv_bias="use_bias",
        output_bias="use_bias",
        ffn_bias="use_bias",
        graph=lambda _: Graph(norm="layer", is_gated=False),
        layers=alike_in_window,
    ),
    Architecture(
        hf_name="NemotronForCausalLM",
        model_type="nemotron",
        summary="LayerNorm with 1 + w; FFN without gates; partial rotary",
        gguf=GgufNames("nemotron"),
        norm_eps="norm_eps",
        norm_offset=1,
        has_norm_bias=True,
        **BIASED,
        ffn_bias="mlp_bias",
        names=TensorNames(gate_up=("mlp.up_proj",)),
        graph=lambda _: Graph(norm="layer", is_gated=False),
    ),
)
