"""The compiled library's functions, typed; ctypes releases the GIL while one runs."""

import ctypes
import functools
import logging
from ctypes import (
    POINTER,
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

from draftwerk.model.native.build import NativeUnavailable, library_path, rebuild
from draftwerk.model.native.calls.structs import (
    STRUCTS,
    AdapterModule,
    LayerShape,
    LogitQuestions,
    PathRow,
    RoundArrays,
    Shape,
    ShardColumns,
    StoredPart,
    TreeShape,
    TurnedKeys,
)

log = logging.getLogger("draftwerk")


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
    "model_learn": (None, [c_void_p, c_int]),
    "model_set_embedding": (None, [c_void_p, c_int, c_void_p, c_int]),
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
    "answer_questions": (None, [c_void_p, POINTER(LogitQuestions)]),
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
