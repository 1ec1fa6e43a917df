"""Structs of the compiled library, as ctypes sees them."""

from ctypes import Structure, c_double, c_float, c_int32, c_int64, c_uint32, c_uint64, c_void_p
from typing import ClassVar


class Shape(Structure):
    """Mirrors `Shape` in source/forward/model.h."""

    _fields_: ClassVar = [
        *((name, c_int32) for name in ("vocab", "hidden", "layers", "heads", "kv_heads")),
        *((name, c_int32) for name in ("head_size", "ffn", "format", "in_bf16", "kv_format")),
        *(
            (name, c_int32)
            for name in ("norm", "activation", "is_gated", "is_parallel", "head_norm")
        ),
        *((name, c_int32) for name in ("norms_after_rotation", "rotary_rounding")),
        ("rotary_pairs", c_int32 * 2),
        ("rotary_count", c_int32),
        *((name, c_int32) for name in ("experts", "experts_used", "expert_ffn")),
        *((name, c_int32) for name in ("experts_sigmoid", "experts_sum_to_one", "shared_ffn")),
        ("shared_is_gated", c_int32),
        ("taps", c_int32),
        *((f"recurrent_{name}", c_int32) for name in ("key_heads", "value_heads", "key_size")),
        *((f"recurrent_{name}", c_int32) for name in ("value_size", "taps", "rule", "takes_turns")),
        *((name, c_int32) for name in ("has_output_gate", "kept_tiles", "layer_input")),
        ("experts_scale", c_float),
        *((name, c_float) for name in ("norm_epsilon", "embedding_multiplier")),
        *((name, c_float) for name in ("residual_multiplier", "logit_scale", "logit_softcap")),
        *((name, c_float) for name in ("attention_softcap", "attention_scale")),
        *((name, c_float) for name in ("gate_limit", "gate_slope")),
        *((name, c_float) for name in ("temperature_beta", "temperature_length")),
        ("rotary_magnitudes", c_float * 2),
        ("layer_input_multiplier", c_float),
    ]


class LayerShape(Structure):
    """Mirrors `LayerShape` in source/forward/model.h."""

    _fields_: ClassVar = [
        *((name, c_int32) for name in ("window", "rotary", "has_experts", "mixer")),
        *((name, c_int32) for name in ("kv_heads", "head_size", "ffn", "kv_from")),
        *((name, c_int32) for name in ("keys_are_values", "plane", "group_plane")),
    ]


class ShardColumns(Structure):
    """Mirrors `Shard` in source/forward/model.h: (first, count) of each kind of column."""

    _fields_: ClassVar = [
        (f"{name}_{what}", c_int32)
        for name in ("heads", "kv_heads", "hidden", "ffn", "vocab")
        for what in ("first", "count")
    ]


class StateRow(Structure):
    """Mirrors `StateRow` in source/forward/model.h."""

    _fields_: ClassVar = [
        *((name, c_int32) for name in ("first", "count", "nodes", "start")),
        *((name, c_int32) for name in ("source", "target", "first_save", "saves")),
    ]


class PathRow(Structure):
    """Mirrors `PathRow` in source/forward/model.h."""

    _fields_: ClassVar = [
        *((name, c_void_p) for name in ("nodes", "wanted")),
        *((name, c_int32) for name in ("count", "saves", "target", "position")),
    ]


class RoundArrays(Structure):
    """Mirrors `Batch` in source/forward/model.h."""

    _fields_: ClassVar = [
        *((name, c_void_p) for name in ("tokens", "positions", "slots", "row_starts")),
        *((name, c_void_p) for name in ("kv_lengths", "block_tables", "ancestors", "outputs")),
        *((name, c_void_p) for name in ("keys", "values", "logits", "states", "adapters", "seen")),
        *((name, c_void_p) for name in ("window_slots", "window_tables")),
        *((name, c_void_p) for name in ("window_keys", "window_values")),
        *((name, c_void_p) for name in ("hidden_in", "hidden_out")),
        *((name, c_int32) for name in ("token_count", "row_count", "table_width")),
        *((name, c_int32) for name in ("output_count", "logit_count")),
        *((name, c_int32) for name in ("block_count", "window_block_count", "block_size")),
        *((name, c_int32) for name in ("slot_bytes", "window_slot_bytes")),
        ("layers", c_int32),
        ("state_row_count", c_int32),
        ("state_numbers", c_int64),
        *(
            (name, c_void_p)
            for name in ("state_slots", "state_rows", "state_parents", "state_saves")
        ),
        *((name, c_void_p) for name in ("kept", "kept_layers")),
        ("kept_count", c_int64),
    ]


DISTRIBUTION = ("temperature", "top_p", "min_p")
"""Numbers of `Sampling` that the kernels are given as they are."""


class SamplingArguments(Structure):
    """Mirrors `SamplingRequest` in source/sampling/sampler.h."""

    _fields_: ClassVar = [
        ("logits", c_void_p),
        *((name, c_void_p) for name in ("edit_tokens", "edit_rates", "edit_losses", "edit_biases")),
        ("allowed", c_void_p),
        *((name, c_double) for name in DISTRIBUTION),
        ("seed", c_uint64),
        ("branch", c_uint32),
        ("position", c_uint32),
        ("top_k", c_int32),
        ("edit_count", c_int32),
    ]


class DraftWalk(Structure):
    """Mirrors `DraftWalk` in source/sampling/answers.h."""

    _fields_: ClassVar = [
        ("root", SamplingArguments),
        *((name, c_void_p) for name in ("tokens", "parents")),
        *((name, c_int32) for name in ("nodes", "first")),
    ]


class LogitQuestions(Structure):
    """Mirrors `LogitQuestions` in source/sampling/answers.h."""

    _fields_: ClassVar = [
        *((name, c_void_p) for name in ("logits", "walks", "ranked", "chosen", "best", "losses")),
        *((name, c_double) for name in ("loss_nats", "loss_max")),
        *((name, c_int32) for name in ("rows", "vocab", "walk_count")),
        *((name, c_int32) for name in ("ranked_count", "best_count")),
    ]


class LogprobRequest(Structure):
    """Mirrors `LogprobRequest` in source/sampling/logprobs.h."""

    _fields_: ClassVar = [
        ("logits", c_void_p),
        ("token", c_int32),
        ("count", c_int32),
        *((name, c_void_p) for name in ("logprob", "top_tokens", "top_logprobs")),
    ]


class DraftHeadRow(Structure):
    """Mirrors `DraftHeadRow` in source/draft_head/draft_head.h."""

    _fields_: ClassVar = [
        ("state", c_void_p),
        ("token", c_int32),
        *((name, c_void_p) for name in ("next", "best", "logprobs")),
    ]


class TreeStart(Structure):
    """Mirrors `TreeStart` in source/draft_head/draft_tree.h."""

    _fields_: ClassVar = [
        ("state", c_void_p),
        ("seed", c_uint64),
        ("branch", c_uint32),
        ("position", c_uint32),
        ("token", c_int32),
        ("sampled", c_int32),
        ("scale", c_double),
    ]


class StoredPart(Structure):
    """Mirrors `StoredPart` in source/matrix/stored.h."""

    _fields_: ClassVar = [
        ("data", c_void_p),
        ("rows", c_void_p),
        ("row_bytes", c_int64),
        ("kind", c_int32),
        ("count", c_int32),
    ]


class AdapterModule(Structure):
    """Mirrors `AdapterModule` in source/forward/adapters.h."""

    _fields_: ClassVar = [
        *((name, c_void_p) for name in ("a", "b")),
        *((name, c_int32) for name in ("layer", "part", "first", "columns", "rank", "inputs")),
        ("scale", c_float),
    ]


class TreeShape(Structure):
    """Mirrors `TreeShape` in source/draft_head/draft_tree.h."""

    _fields_: ClassVar = [
        *((name, c_int32) for name in ("levels", "ranked", "best", "expanded", "open_max")),
        *((name, c_double) for name in ("chance_min", "loss_nats", "loss_max")),
    ]


class TurnedKeys(Structure):
    """Mirrors `TurnedKeys` in source/forward/copies.h."""

    _fields_: ClassVar = [
        *((name, c_void_p) for name in ("keys", "inverse_frequencies", "sources", "targets")),
        ("slots", c_int64),
        *((name, c_int32) for name in ("heads", "size", "is_bf16", "count", "turn")),
    ]


STRUCTS = {
    "Shape": Shape,
    "LayerShape": LayerShape,
    "Shard": ShardColumns,
    "StateRow": StateRow,
    "PathRow": PathRow,
    "RoundArrays": RoundArrays,
    "SamplingRequest": SamplingArguments,
    "LogprobRequest": LogprobRequest,
    "DraftWalk": DraftWalk,
    "LogitQuestions": LogitQuestions,
    "DraftHeadRow": DraftHeadRow,
    "TreeStart": TreeStart,
    "TreeShape": TreeShape,
    "TurnedKeys": TurnedKeys,
    "StoredPart": StoredPart,
    "AdapterModule": AdapterModule,
}
"""By the names of the C++ structs that they mirror."""
