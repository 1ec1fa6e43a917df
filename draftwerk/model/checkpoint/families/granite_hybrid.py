"""Granite 4: Mamba-2 in most layers, attention in the others; experts, or none."""

from collections.abc import Callable, Sequence
from math import inf
from typing import Any

from draftwerk.model.checkpoint.config import LayerKind, Mixer
from draftwerk.model.checkpoint.families.architecture import (
    BIASED,
    Architecture,
    GgufNames,
    Json,
    count_of,
    counted,
    divided,
)
from draftwerk.model.checkpoint.families.experts import (
    SHARED_SIZE,
    USED,
    experts_of,
    gguf_experts,
    routed,
)
from draftwerk.model.checkpoint.families.granite import (
    GRANITE_EXPERTS,
    SHARED_IN_GGUF,
    granite_fields,
    granite_graph,
)
from draftwerk.model.checkpoint.families.windows import FULL, checked_types
from draftwerk.model.checkpoint.keys.known_keys import KnownKeys
from draftwerk.model.checkpoint.recurrent_layers import Recurrence
from draftwerk.model.checkpoint.unsupported import Refused

MIXERS: dict[str, Mixer] = {
    **dict.fromkeys(("attention", FULL), "attention"),
    **dict.fromkeys(("mamba", "linear_attention"), "recurrence"),
}
"""By what configs call them."""
UNLIMITED = [[0.0, inf], (0.0, inf), [0.0, {"__float__": "Infinity"}]]
"""The values that Transformers writes where steps are not clamped."""
FIELDS = ("mamba_n_groups", "mamba_n_heads", "mamba_d_state", "mamba_d_conv", "mamba_expand")


def _recurrence(hf: Json) -> Recurrence:
    """Return Mamba-2's sizes. Raises Refused."""
    groups, heads, state_size, kernel_size, expand = (count_of(hf, each) for each in FIELDS)
    width, size = expand * hf["hidden_size"], hf.get("mamba_d_head")
    if width % heads or heads % groups:
        raise Refused(f"mamba_n_heads {heads} does not go with {width} values, {groups} groups")
    if size not in (None, "auto", width // heads):
        raise Refused(f"mamba_d_head {size!r} contradicts mamba_n_heads {heads}")
    if (limit := hf.get("time_step_limit")) is not None and limit not in UNLIMITED:
        raise Refused(f"time_step_limit {limit!r} is not supported")
    return Recurrence(
        rule="mamba",
        key_heads=groups,
        value_heads=heads,
        key_size=state_size,
        value_size=width // heads,
        kernel_size=kernel_size,
    )


def _layers(hf: Json) -> Sequence[LayerKind]:
    kinds = checked_types(hf, hf.get("layer_types"), MIXERS)
    if not any(MIXERS[kind] == "attention" for kind in kinds):
        raise Refused("layer_types without attention is not supported")
    rotary = 0 if hf.get("position_embedding_type") == "rope" else -1
    has_experts = bool(hf.get("num_local_experts"))
    return [LayerKind(rotary=rotary, has_experts=has_experts, mixer=MIXERS[kind]) for kind in kinds]


def _rewritten(hf: Json) -> Json:
    """Return the size of the FFN, which without experts is that of the shared one."""
    if hf.get("num_local_experts"):
        return {}
    return {"intermediate_size": hf.get("shared_intermediate_size")}


def _gguf_fields(get: Callable[..., Any]) -> Json:
    """Return the fields; files say by a count of keys of none which layers do not attend."""
    counts, width = get(".attention.head_count_kv"), get(".ssm.inner_size") or 0
    heads = counts if isinstance(counts, list) else [counts] * get(".block_count")
    if get(".expert_count"):
        counted(f"granitehybrid{USED}", get(USED))
    return {
        **gguf_experts(get),
        **granite_fields(get),
        "num_local_experts": get(".expert_count", 0),
        "shared_intermediate_size": get(SHARED_SIZE) or get(".feed_forward_length"),
        "layer_types": ["attention" if count else "mamba" for count in heads],
        "position_embedding_type": "rope" if get(".rope.scaling.finetuned", True) else None,
        "mamba_n_groups": get(".ssm.group_count"),
        "mamba_n_heads": get(".ssm.time_step_rank"),
        "mamba_d_state": get(".ssm.state_size"),
        "mamba_d_conv": get(".ssm.conv_kernel"),
        "mamba_expand": divided("granitehybrid.ssm.inner_size", width, get(".embedding_length")),
    }


STATE_KEYS = ("group_count", "time_step_rank", "state_size", "conv_kernel", "inner_size")
NAMES = GRANITE_EXPERTS._replace(recurrence="mamba.")
COUNTED = experts_of("num_local_experts", shared="shared_intermediate_size")
ROWS = (
    Architecture(
        hf_name="GraniteMoeHybridForCausalLM",
        model_type="granitemoehybrid",
        summary="Mamba-2 in most; experts and an FFN of all tokens, or that alone; as Granite",
        gguf=GgufNames(
            "granitehybrid",
            pairs_are_neighbours=True,
            fields=_gguf_fields,
            required=tuple(f".ssm.{name}" for name in STATE_KEYS),
            keys=routed(),
            names=SHARED_IN_GGUF._replace(recurrence="mamba."),
        ),
        names=NAMES,
        aliases={"layers_block_type": "layer_types"},
        keys=KnownKeys(only={"normalization_function": ("rmsnorm",)}),
        rewritten=_rewritten,
        **BIASED,
        recurrent_kernel_bias="mamba_conv_bias",
        recurrent_bias="mamba_proj_bias",
        recurrence=_recurrence,
        experts=lambda hf: COUNTED(hf) if hf.get("num_local_experts") else None,
        graph=granite_graph,
        layers=_layers,
    ),
)
