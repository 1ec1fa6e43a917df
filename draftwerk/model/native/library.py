"""The compiled library's functions, typed; ctypes releases the GIL while one runs."""

import ctypes
import functools
import logging
from ctypes import (
    POINTER,
    Structure,
    c_char_p,
    c_double,
    c_float,
    c_int,
    c_int32,
    c_int64,
    c_long,
    c_uint32,
    c_uint64,
    c_void_p,
)
from typing import ClassVar

from draftwerk.model.native.build import NativeUnavailable, library_path, rebuild

log = logging.getLogger("draftwerk")


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
        *((name, c_int32) for name in ("rotary_pairs", "rotary_count")),
        *((name, c_int32) for name in ("experts", "experts_used", "expert_ffn")),
        *((name, c_int32) for name in ("experts_sigmoid", "experts_sum_to_one", "shared_ffn")),
        ("shared_is_gated", c_int32),
        *((name, c_int32) for name in ("taps", "delta_key_heads", "delta_value_heads")),
        *((name, c_int32) for name in ("delta_key_size", "delta_value_size", "delta_taps")),
        ("has_output_gate", c_int32),
        ("experts_scale", c_float),
        *((name, c_float) for name in ("norm_epsilon", "embedding_multiplier")),
        *((name, c_float) for name in ("residual_multiplier", "logit_scale", "logit_softcap")),
        *((name, c_float) for name in ("attention_softcap", "attention_scale")),
        *((name, c_float) for name in ("gate_limit", "gate_slope")),
        *((name, c_float) for name in ("temperature_beta", "temperature_length")),
        ("rotary_magnitudes", c_float * 2),
    ]


class LayerShape(Structure):
    """Mirrors `LayerShape` in source/forward/model.h."""

    _fields_: ClassVar = [(name, c_int32) for name in ("window", "rotary", "has_experts", "mixer")]


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
        *((name, c_void_p) for name in ("hidden_in", "hidden_out")),
        *((name, c_int32) for name in ("token_count", "row_count", "table_width")),
        *((name, c_int32) for name in ("output_count", "logit_count")),
        *((name, c_int32) for name in ("block_count", "block_size", "layers")),
        ("state_row_count", c_int32),
        ("state_numbers", c_int64),
        *(
            (name, c_void_p)
            for name in ("state_slots", "state_rows", "state_parents", "state_saves")
        ),
    ]


class SamplingArguments(Structure):
    """Mirrors `SamplingRequest` in source/sampling/sampler.h."""

    _fields_: ClassVar = [
        ("logits", c_void_p),
        *((name, c_void_p) for name in ("edit_tokens", "edit_rates", "edit_losses", "edit_biases")),
        ("allowed", c_void_p),
        *((name, c_double) for name in ("temperature", "top_p", "min_p")),
        ("seed", c_uint64),
        ("branch", c_uint32),
        ("position", c_uint32),
        ("top_k", c_int32),
        ("edit_count", c_int32),
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
    "DraftHeadRow": DraftHeadRow,
    "TreeStart": TreeStart,
    "TreeShape": TreeShape,
    "TurnedKeys": TurnedKeys,
    "StoredPart": StoredPart,
    "AdapterModule": AdapterModule,
}
"""By the names of the C++ structs that they mirror."""
SIGNATURES = {
    "pool_create": (c_void_p, [c_int]),
    "pool_destroy": (None, [c_void_p]),
    "model_create": (
        c_void_p,
        [c_void_p, POINTER(Shape), POINTER(LayerShape), POINTER(c_float)],
    ),
    "model_destroy": (None, [c_void_p]),
    "model_split": (None, [c_void_p, POINTER(ShardColumns), c_void_p]),
    "meeting_create": (c_void_p, [c_void_p, c_int64, c_int, c_int]),
    "meeting_destroy": (None, [c_void_p]),
    "meeting_give_up": (None, [c_void_p]),
    "meeting_gather": (c_char_p, [c_void_p, c_void_p, c_int, c_int, c_int, c_int]),
    "model_arena_bytes": (c_int64, [c_void_p, c_int, c_int]),
    "model_router_bytes": (c_int64, [c_void_p]),
    "model_use_arena": (None, [c_void_p, c_void_p, c_int64, c_int]),
    "model_set_matrix": (
        None,
        [c_void_p, c_int, c_int, c_int, c_void_p, c_int, c_int, c_int, c_void_p],
    ),
    "model_set_stored": (
        None,
        [c_void_p, c_int, c_int, c_int, POINTER(StoredPart), c_int, c_int, c_void_p],
    ),
    "stored_matrix_bytes": (c_int64, [c_int, c_int, c_int]),
    "stored_file_bytes": (c_int64, [c_int, c_int]),
    "dequantise_rows": (None, [c_int, c_void_p, c_int64, c_int, c_int, c_void_p]),
    "quantise_rows": (None, [c_void_p, c_int, c_void_p, c_int, c_int, c_int, c_void_p]),
    "stored_create": (c_void_p, [c_void_p, POINTER(StoredPart), c_int, c_int]),
    "stored_destroy": (None, [c_void_p]),
    "stored_multiply": (None, [c_void_p, c_void_p, c_int, c_void_p]),
    "stored_unpack": (None, [c_void_p, c_int, c_int, c_void_p]),
    "stored_time": (None, [c_void_p, POINTER(c_int32), c_int, POINTER(c_double)]),
    "model_set_vector": (None, [c_void_p, c_int, c_int, c_void_p, c_int]),
    "model_set_embedding": (None, [c_void_p, c_void_p, c_int]),
    "draft_head_create": (
        c_void_p,
        [c_void_p, c_int, c_int, c_void_p, c_int, c_void_p, c_int],
    ),
    "draft_head_use_model": (None, [c_void_p, c_void_p]),
    "draft_head_destroy": (None, [c_void_p]),
    "draft_head_set_matrix": (None, [c_void_p, c_int, POINTER(StoredPart), c_int, c_int]),
    "draft_head_set_vector": (None, [c_void_p, c_int, c_void_p]),
    "draft_head_run": (c_char_p, [c_void_p, c_void_p, c_int, c_int]),
    "draft_head_build_trees": (c_char_p, [c_void_p, c_void_p, c_int, POINTER(TreeShape), c_void_p]),
    "sample_many": (None, [c_void_p, c_void_p, c_int, c_int, c_void_p]),
    "gumbel_many": (None, [c_uint64, c_uint32, c_uint32, c_void_p, c_int, c_void_p]),
    "report_logprobs": (None, [c_void_p, c_void_p, c_int, c_int]),
    "copy_tensor_units": (
        None,
        [c_void_p, c_int, c_int64, c_int64, c_void_p, c_void_p, c_int],
    ),
    "turn_tensor_keys": (None, [c_void_p, POINTER(TurnedKeys), c_int]),
    "measure_multiply_adds": (c_double, [c_void_p, c_int, c_long]),
    "measure_stream": (c_int64, [c_void_p]),
    "measure_linears": (None, [c_void_p, c_int, c_int]),
    "model_add_adapter": (c_char_p, [c_void_p, POINTER(AdapterModule), c_int]),
    "struct_bytes": (c_int64, [c_char_p]),
    "model_forward": (c_char_p, [c_void_p, POINTER(RoundArrays)]),
    "model_advance": (c_char_p, [c_void_p, POINTER(RoundArrays), POINTER(PathRow), c_int]),
}


@functools.cache
def library(isa: str | None = None) -> ctypes.CDLL:
    """Return the loaded library of an instruction set, by default the one to be used here.

    Raises NativeUnavailable where it cannot be built. Its functions that can refuse raise
    ValueError.
    """
    loaded = _loaded(isa)
    for name, (result, arguments) in SIGNATURES.items():
        function = getattr(loaded, name)
        function.restype, function.argtypes = result, arguments
        if result is c_char_p:
            function.errcheck = _raise_refusal
    for name, struct in STRUCTS.items():
        there, here = loaded.struct_bytes(name.encode()), ctypes.sizeof(struct)
        if there != here:
            raise RuntimeError(f"{name} has {there} bytes in the library, {here} here")
    return loaded


def _loaded(isa: str | None) -> ctypes.CDLL:
    """Return the library itself; one that does not load is compiled anew, once."""
    path = library_path(isa)
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        log.warning("%s does not load, the kernels are compiled anew: %s", path, error)
    path = rebuild(path, isa)
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise NativeUnavailable(f"{path} does not load: {error}") from error


def _raise_refusal(refusal: bytes | None, *_: object) -> None:
    """Raise ValueError if a function says why it refuses."""
    if refusal:
        raise ValueError(refusal.decode())
