"""Qwen3.5 and Qwen3-Next: three of four layers have a delta rule, the others gated attention."""

from collections.abc import Callable, Sequence
from typing import Any

from draftwerk.model.checkpoint.config import Graph, LayerKind
from draftwerk.model.checkpoint.families.architecture import (
    BIASED,
    Architecture,
    GgufNames,
    Json,
    TensorNames,
    count_of,
    counted,
    divided,
)
from draftwerk.model.checkpoint.families.experts import (
    SHARED_SIZE,
    SIZE,
    USED,
    everywhere,
    experts_of,
    gguf_experts,
    routed,
    sparse_steps,
)
from draftwerk.model.checkpoint.families.windows import FULL, checked_types
from draftwerk.model.checkpoint.keys.known_keys import NO_OTHERS, KnownKeys, because
from draftwerk.model.checkpoint.recurrent_layers import Recurrence
from draftwerk.model.checkpoint.unsupported import Refused

LINEAR = "linear_attention"
EXPERTS = TensorNames(
    shared_gate_up=("mlp.shared_expert.gate_proj", "mlp.shared_expert.up_proj"),
    shared_down="mlp.shared_expert.down_proj",
)
SHARED = "shared_expert_intermediate_size"
SHARED_EXPERTS, NORMALISED_EXPERTS = (
    experts_of(
        "num_experts",
        size="moe_intermediate_size",
        normalises=field,
        shared=SHARED,
        gates_shared=True,
    )
    for field in ("", "norm_topk_prob")
)
FIELDS = (
    "linear_num_key_heads",
    "linear_num_value_heads",
    "linear_key_head_dim",
    "linear_value_head_dim",
    "linear_conv_kernel_dim",
)
STATE_KEYS = (
    *(".ssm.group_count", ".ssm.time_step_rank", ".ssm.state_size", ".ssm.inner_size"),
    ".ssm.conv_kernel",
)
TAKE_TURNS = "linear_value_heads_take_turns"
"""A field that no config of Transformers has: the order of value heads in a GGUF."""


def _recurrence(hf: Json) -> Recurrence:
    """Return the rule. Raises Refused."""
    key_heads, value_heads, key_size, value_size, kernel_size = (
        count_of(hf, each) for each in FIELDS
    )
    if value_heads % key_heads:
        raise Refused(
            f"linear_num_value_heads {value_heads} is no multiple of linear_num_key_heads "
            f"{key_heads}"
        )
    return Recurrence(
        key_heads=key_heads,
        value_heads=value_heads,
        takes_turns=bool(hf.get(TAKE_TURNS)),
        key_size=key_size,
        value_size=value_size,
        kernel_size=kernel_size,
    )


def _layers(hf: Json) -> Sequence[LayerKind]:
    types, count = hf.get("layer_types"), hf["num_hidden_layers"]
    if types is None:
        every = counted("full_attention_interval", hf.get("full_attention_interval", 4))
        types = [LINEAR if (index + 1) % every else FULL for index in range(count)]
    types = checked_types(hf, types, (FULL, LINEAR))
    if FULL not in types:
        field = "full_attention_interval" if hf.get("layer_types") is None else "layer_types"
        raise Refused(f"{field} {hf.get(field)!r} without {FULL} is not supported")
    return [LayerKind(mixer="recurrence" if kind == LINEAR else "attention") for kind in types]


def _gguf(name: str, takes_turns: bool = True, has_experts: bool = True) -> GgufNames:
    """Return how llama.cpp writes a family; it orders value heads anew, or leaves them."""

    def fields(get: Callable[..., Any]) -> Json:
        heads, width = get(".ssm.time_step_rank"), get(".ssm.inner_size")
        size = divided(f"{name}.ssm.inner_size", width, heads) if heads and width else None
        sizes = (
            *(get(".ssm.group_count"), heads, get(".ssm.state_size")),
            *(size, get(".ssm.conv_kernel")),
        )
        experts = {**gguf_experts(get), SHARED: get(SHARED_SIZE)} if has_experts else {}
        return {
            **dict(zip(FIELDS, sizes, strict=True)),
            **experts,
            "full_attention_interval": get(".full_attention_interval", 4),
            TAKE_TURNS: takes_turns,
        }

    return GgufNames(
        name,
        fields=fields,
        required=(*STATE_KEYS, *((USED, SIZE, SHARED_SIZE) if has_experts else ())),
        ffn_norm="post_attention_norm",
        keys=routed() if has_experts else NO_OTHERS,
    )


def _fields(size: str) -> dict[str, Any]:
    """Return what the rows below have alike; `size` is the field with an FFN's."""
    return {
        "keys": KnownKeys(
            frozenset({"full_attention_interval"}),
            because("no layer has an FFN of that size", "intermediate_size")
            if size != "intermediate_size"
            else {},
            {"attn_output_gate": (True,), "mamba_ssm_dtype": ("float32",)},
        ),
        "ffn_size": size,
        "norm_offset": 1,
        "has_mtp": True,
        "query_key_norm": lambda _: True,
        **BIASED,
        "graph": lambda _: Graph(norm="rms_rounded_once", has_output_gate=True),
        "recurrence": _recurrence,
    }


ROWS = (
    Architecture(
        hf_name="Qwen3_5ForCausalLM",
        model_type="qwen3_5_text",
        gguf=_gguf("qwen35", has_experts=False),
        summary="a gated delta rule in three of four; gated attention; partial rotary",
        layers=_layers,
        wrappers=("Qwen3_5ForConditionalGeneration",),
        **_fields("intermediate_size"),
    ),
    Architecture(
        hf_name="Qwen3_5MoeForCausalLM",
        model_type="qwen3_5_moe_text",
        gguf=_gguf("qwen35moe"),
        summary="as Qwen3.5; experts, and a gated one of all tokens",
        names=EXPERTS,
        experts=SHARED_EXPERTS,
        layers=everywhere(_layers),
        wrappers=("Qwen3_5MoeForConditionalGeneration",),
        **_fields("moe_intermediate_size"),
    ),
    Architecture(
        hf_name="Qwen3NextForCausalLM",
        model_type="qwen3_next",
        gguf=_gguf("qwen3next", takes_turns=False),
        summary="as Qwen3.5; experts, and a gated one of all tokens",
        names=EXPERTS,
        experts=NORMALISED_EXPERTS,
        has_inputs_by_head=True,
        layers=sparse_steps(_layers),
        **_fields("intermediate_size"),
    ),
)
