"""The description of a model for the kernels: its shape, the formats of its weights and pages."""

from math import sqrt

import torch

from draftwerk.cache.pages.kv_formats import KV_FORMATS, NATIVE_KV_FORMATS, PagedHeads, refusal_of
from draftwerk.model.checkpoint.config import Experts, LayerPlanes, ModelConfig
from draftwerk.model.checkpoint.recurrent_layers import Recurrence
from draftwerk.model.checkpoint.shard import Shard
from draftwerk.model.checkpoint.stored_matrix import STORED
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.native.build import NativeUnavailable
from draftwerk.model.native.calls.declarations import enumerated
from draftwerk.model.native.calls.structs import LayerShape, Shape, ShardColumns

STORED_FORMAT = 2
FORMATS = {"fp32": 0, "bf16": 1, "int8": STORED_FORMAT, "int4": STORED_FORMAT}
"""The formats in which weights that are not quantised can be served."""
QUANTISED = {"int8": "Q8_0", "int4": "IQ4_NL"}
"""The types of blocks to which they are quantised: of those of their size the nearest to the
weights, by `benchmarks.bit_widths --kinds`."""
HEAD_KIND = "Q8_0"
"""The type of the head then: it decides between tokens."""
PLAIN_PAGES = {"fp32": torch.float32, "bf16": torch.bfloat16}
KV_CODES = {kind: FORMATS[kind] for kind in PLAIN_PAGES} | {
    name: row.native_code for name, row in NATIVE_KV_FORMATS.items()
}
NORMS, ACTIVATIONS, HEAD_NORMS, ROTARY_ROUNDINGS, MIXERS, RULES = (
    enumerated("forward/model.h", name)
    for name in ("NormKind", "Activation", "HeadNorm", "RotaryRounding", "Mixer", "Rule")
)
NO_EXPERTS = Experts(count=0, used=0, ffn_size=0)
NO_RECURRENCE = Recurrence(key_heads=0, value_heads=0, key_size=0, value_size=0, kernel_size=0)
HIDDEN_MAX, EXPERTS_MAX = 16384, 1024
INPUTS_MAX = 1 << 16
"""Numbers of a token in embeddings that layers have of their own."""
KEY_MAX, KERNEL_SIZE_MAX = 256, 8
"""The limits of a recurrence."""
GROUP_MAX = 256
KEPT_TILE = 128
"""Positions of a tile, of which those that are kept beside windows are whole ones."""


def check_model(config: ModelConfig, dtype: str, kv_dtype: str) -> None:
    format_of(dtype)
    if why := refusal_of(kv_dtype, paged_heads(config)):
        raise Refused(why)
    if config.hidden_size > HIDDEN_MAX or config.num_heads // config.num_kv_heads > GROUP_MAX:
        raise NativeUnavailable("the model is too wide for the native kernels")
    if config.layer_count * config.graph.per_layer_size > INPUTS_MAX:
        raise NativeUnavailable("the layers' embeddings are too wide for the native kernels")
    rule = config.recurrence or NO_RECURRENCE
    if (
        rule.key_size > KEY_MAX
        or rule.kernel_size > KERNEL_SIZE_MAX
        or rule.channels > HIDDEN_MAX * 2
    ):
        raise NativeUnavailable("the recurrence is too wide for the native kernels")
    if config.experts is None:
        return
    if config.experts.count > EXPERTS_MAX:
        raise NativeUnavailable("there are too many experts for the native kernels")
    if not config.graph.is_gated or config.graph.is_parallel:
        raise NativeUnavailable("no native kernels for experts beside such an FFN")


def paged_heads(config: ModelConfig) -> PagedHeads:
    """Return what pages hold of a model."""
    sizes = {config.key_heads(index).size for index in range(config.layer_count)}
    return PagedHeads(bool(config.kernel_size), frozenset({config.head_size, *sizes}))


def layer_shape(config: ModelConfig, index: int, planes: LayerPlanes) -> LayerShape:
    kind, ffn = config.kind(index), config.kind(index).ffn_size
    if config.experts and config.experts.shared_ffn_size and not kind.has_experts:
        ffn = config.dense_size(index)  # The model's is what tokens have beside experts.
    own = kind.kv_heads, kind.head_size, ffn, kind.kv_from, kind.keys_are_values
    mixer, where = MIXERS.index(kind.mixer), (planes.planes.start, planes.in_group)
    return LayerShape(kind.window, kind.rotary, kind.has_experts, mixer, *own, *where)


def format_of(dtype: str) -> int:
    if dtype == STORED:
        return STORED_FORMAT
    if dtype not in FORMATS:
        raise ValueError(f"dtype {dtype!r} is none of {', '.join(FORMATS)}, {STORED}")
    return FORMATS[dtype]


def columns_of(shard: Shard) -> ShardColumns:
    spans = (shard.heads, shard.kv_heads, shard.hidden, shard.ffn, shard.vocab)
    return ShardColumns(*((span.start, len(span)) for span in spans))


def kv_format(dtype: str, kv_dtype: str) -> str:
    """Return the format of keys and values that "auto" comes to."""
    if kv_dtype != "auto":
        return kv_dtype
    return "fp32" if dtype == "fp32" else "bf16"


def page_format(config: ModelConfig, dtype: str, kv_dtype: str) -> tuple[torch.dtype, int]:
    """Return the pages' dtype, and how many of it a head takes."""
    kv_dtype = kv_format(dtype, kv_dtype)
    if kv_dtype in PLAIN_PAGES:
        return PLAIN_PAGES[kv_dtype], config.head_size
    return torch.int8, KV_FORMATS[kv_dtype].head_bytes(config.head_size)


def shape_of(config: ModelConfig, dtype: str, kv_dtype: str) -> Shape:
    graph, experts = config.graph, config.experts or NO_EXPERTS
    recurrence = config.recurrence or NO_RECURRENCE
    multiplier = graph.embedding_multiplier
    if dtype == "bf16" and graph.rounds_embedding_multiplier:
        multiplier = float(torch.tensor(multiplier, dtype=torch.bfloat16))
    input_multiplier = sqrt(graph.per_layer_size)
    if dtype == "bf16":
        input_multiplier = float(torch.tensor(input_multiplier, dtype=torch.bfloat16))
    rotaries = [len(each.inverse_frequencies) for each in config.rotaries]
    return Shape(
        vocab=config.vocab_size,
        hidden=config.hidden_size,
        layers=config.layer_count,
        heads=config.num_heads,
        kv_heads=config.num_kv_heads,
        head_size=config.head_size,
        ffn=experts.shared_ffn_size or config.ffn_size,
        format=format_of(dtype),
        in_bf16=dtype == "bf16",
        kv_format=KV_CODES[kv_dtype],
        norm=NORMS.index(graph.norm),
        activation=ACTIVATIONS.index("clamped_silu" if graph.gate_limit else graph.activation),
        is_gated=graph.is_gated,
        is_parallel=graph.is_parallel,
        head_norm=HEAD_NORMS.index(graph.head_norm),
        norms_after_rotation=graph.norms_after_rotation,
        rotary_rounding=ROTARY_ROUNDINGS.index(graph.rotary_rounding),
        rotary_pairs=(*rotaries, 0)[:2],
        rotary_count=len(config.rotaries),
        experts=experts.count,
        experts_used=experts.used,
        expert_ffn=experts.ffn_size,
        experts_sigmoid=experts.scores == "sigmoid",
        experts_sum_to_one=experts.normalises,
        experts_scale=experts.weight_scale,
        shared_ffn=experts.shared_ffn_size,
        shared_is_gated=experts.shared_is_gated,
        taps=config.kernel_size,
        recurrent_key_heads=recurrence.key_heads,
        recurrent_value_heads=recurrence.value_heads,
        recurrent_key_size=recurrence.key_size,
        recurrent_value_size=recurrence.value_size,
        recurrent_taps=recurrence.kernel_size,
        recurrent_rule=RULES.index(recurrence.rule),
        recurrent_takes_turns=recurrence.takes_turns,
        has_output_gate=graph.has_output_gate,
        kept_tiles=config.kept // KEPT_TILE,
        sees_all=graph.sees_all,
        layer_input=graph.per_layer_size,
        norm_epsilon=config.norm_eps,
        embedding_multiplier=multiplier,
        residual_multiplier=graph.residual_multiplier,
        logit_scale=graph.logit_scale,
        logit_softcap=graph.logit_softcap,
        attention_softcap=graph.attention_softcap,
        attention_scale=graph.attention_scale,
        gate_limit=graph.gate_limit,
        gate_slope=graph.gate_slope,
        temperature_beta=graph.temperature_beta,
        temperature_length=graph.temperature_length,
        rotary_magnitudes=tuple(rotary.magnitude for rotary in config.rotaries),
        layer_input_multiplier=input_multiplier,
    )
