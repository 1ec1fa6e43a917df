"""Qwen3.5: three of four layers have a delta rule, and what the others attend to is gated."""

from collections.abc import Sequence

from draftwerk.model.checkpoint.config import DeltaRule, Graph, LayerKind
from draftwerk.model.checkpoint.families.architecture import Architecture, Json
from draftwerk.model.checkpoint.families.windows import FULL
from draftwerk.model.checkpoint.unsupported import Refused

LINEAR = "linear_attention"
FIELDS = (
    "linear_num_key_heads",
    "linear_num_value_heads",
    "linear_key_head_dim",
    "linear_value_head_dim",
    "linear_conv_kernel_dim",
)


def _delta(hf: Json) -> DeltaRule:
    """Return the rule. Raises Refused."""
    for field in FIELDS:
        value = hf.get(field)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise Refused(f"{field} {value!r} is not a count")
    key_heads, value_heads, key_size, value_size, taps = (hf[field] for field in FIELDS)
    if value_heads % key_heads:
        raise Refused(
            f"linear_num_value_heads {value_heads} is no multiple of linear_num_key_heads "
            f"{key_heads}"
        )
    return DeltaRule(
        key_heads=key_heads,
        value_heads=value_heads,
        key_size=key_size,
        value_size=value_size,
        taps=taps,
    )


def _layers(hf: Json) -> Sequence[LayerKind]:
    types, count = hf.get("layer_types"), hf["num_hidden_layers"]
    if types is None:
        every = hf.get("full_attention_interval")
        if not isinstance(every, int) or every < 1:
            raise Refused(f"full_attention_interval {every!r} is not a count")
        types = [LINEAR if (index + 1) % every else FULL for index in range(count)]
    if not isinstance(types, list) or len(types) != count:
        raise Refused(f"layer_types contradicts num_hidden_layers {count}")
    for kind in types:
        if kind not in (FULL, LINEAR):
            raise Refused(f"layer_types {kind!r} is not supported (only {FULL}, {LINEAR})")
    if FULL not in types:
        raise Refused(f"layer_types without {FULL} is not supported")
    return [LayerKind(mixer="delta" if kind == LINEAR else "attention") for kind in types]


ROWS = (
    Architecture(
        hf_name="Qwen3_5ForCausalLM",
        model_type="qwen3_5_text",
        summary="a gated delta rule in three of four; gated attention; partial rotary",
        required=("num_key_value_heads", "head_dim", *FIELDS),
        defaults={"full_attention_interval": 4, "partial_rotary_factor": 0.25},
        norm_offset=1,
        query_key_norm=lambda _: True,
        qkv_bias="attention_bias",
        output_bias="attention_bias",
        graph=lambda _: Graph(norm="rms_rounded_once", has_output_gate=True),
        delta=_delta,
        layers=_layers,
        rotary_share=0.25,
        wrappers=("Qwen3_5ForConditionalGeneration",),
    ),
)
