"""Families that turn neighbours: GLM-4 and ERNIE 4.5."""

from dataclasses import replace

from draftwerk.model.checkpoint.config import Graph
from draftwerk.model.checkpoint.families.architecture import Architecture, GgufNames, TensorNames
from draftwerk.model.checkpoint.keys.known_keys import KnownKeys

_GLM = Architecture(
    hf_name="GlmForCausalLM",
    model_type="glm",
    summary="partial rotary",
    names=TensorNames(gate_up=("mlp.gate_up_proj",)),
    qkv_bias="attention_bias",
    pairs_are_neighbours=True,
)
ROWS = (
    _GLM,
    replace(
        _GLM,
        hf_name="Glm4ForCausalLM",
        model_type="glm4",
        summary="norms around; partial rotary",
        gguf=GgufNames("glm4", pairs_are_neighbours=True),
        names=TensorNames(
            after_attention="post_self_attn_layernorm",
            after_ffn="post_mlp_layernorm",
            gate_up=("mlp.gate_up_proj",),
        ),
    ),
    Architecture(
        hf_name="Ernie4_5ForCausalLM",
        model_type="ernie4_5",
        summary="rotation in float32",
        gguf=GgufNames("ernie4_5", pairs_are_neighbours=True),
        keys=KnownKeys(only={"compression_ratio": (1.0,)}),
        qkv_bias="use_bias",
        output_bias="use_bias",
        ffn_bias="use_bias",
        graph=lambda _: Graph(rotary_rounding="result"),
        pairs_are_neighbours=True,
    ),
)
