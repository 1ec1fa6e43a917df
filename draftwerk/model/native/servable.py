"""What a CPU can serve without its kernels, told before anything is read, fetched or packed."""

import shutil
from collections.abc import Callable

from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.native.build import NativeUnavailable, obtain

NATIVE_DTYPES = ("int8", "int4")
"""Formats of weights that only the native kernels know on a CPU."""


def may_use_gpu(device: str) -> bool:
    """Return whether a GPU may be what serves; asking torch for one would take seconds."""
    return device == "cuda" or (device == "auto" and shutil.which("nvidia-smi") is not None)


def check_servable(
    device: str, attention: str, dtype: str, kv_dtype: str, progress: Callable[[str], None]
) -> None:
    """Raise Refused for formats that need native kernels where there are none.

    The kernels are compiled if such a format is asked for and that has not been done.
    """
    if may_use_gpu(device):
        return
    if attention != "native" and dtype not in NATIVE_DTYPES and kv_dtype != "int8":
        return  # torch could serve it; the model process tells
    if attention not in ("auto", "native"):
        check_formats(dtype, kv_dtype, f"attention {attention} is not theirs")
        return
    try:
        obtain(progress=progress)
    except NativeUnavailable as error:
        if attention == "native":
            raise Refused(f"attention native: {error}") from error
        check_formats(dtype, kv_dtype, str(error))


def own_format(stored: str, device: str, attention: str, progress: Callable[[str], None]) -> str:
    """Return what `--dtype auto` comes to for weights stored as bf16, int8 or int4.

    int8 for weights of eight bits where the native kernels run; bf16 on a GPU, and where torch
    serves. So are weights of four bits, which the default model's are: int4 rounds activations as
    well, and its greedy texts are not those of Transformers, which the default ones are to be.
    """
    if stored != "int8" or attention not in ("auto", "native") or may_use_gpu(device):
        return "bf16"
    try:
        obtain(progress=progress)
    except NativeUnavailable:
        return "bf16"
    return stored


def check_formats(dtype: str, kv_dtype: str, why_none: str) -> None:
    """Raise Refused for a format that torch does not serve on a CPU."""
    for name, value, native in (("dtype", dtype, NATIVE_DTYPES), ("kv_dtype", kv_dtype, ("int8",))):
        if value in native:
            raise Refused(f"{name} {value!r} needs the native kernels of a CPU: {why_none}")
