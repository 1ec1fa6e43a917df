"""The models that a CPU can serve without its kernels, told before anything is read, fetched or
packed."""

import shutil
from collections.abc import Callable, Iterable

from draftwerk.cache.pages.kv_formats import NATIVE_KV_FORMATS
from draftwerk.model.checkpoint.stored_matrix import KINDS, STORED
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.native.build import NativeUnavailable, obtain

NATIVE_DTYPES = ("int8", "int4", STORED)
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
    if attention != "native" and dtype not in NATIVE_DTYPES and kv_dtype not in NATIVE_KV_FORMATS:
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


def own_format(
    stored: str,
    kinds: Iterable[str],
    device: str,
    attention: str,
    progress: Callable[[str], None],
) -> str:
    """Return what `--dtype auto` comes to for weights of a format; `kinds` are a GGUF's types.

    A quantised GGUF is served as it is where kernels run that know all of its types, else
    dequantised to bf16.
    """
    on_gpu = may_use_gpu(device)
    if stored != STORED or (attention not in ("auto", "native") and not on_gpu):
        return "bf16"
    if unknown := [kind for kind in kinds if kind not in KINDS]:
        progress(f"served as bf16: no kernel has products with {unknown[0]}")
        return "bf16"
    if on_gpu:
        return stored
    try:
        obtain(progress=progress)
    except NativeUnavailable:
        return "bf16"
    return stored


def check_formats(dtype: str, kv_dtype: str, why_none: str) -> None:
    """Raise Refused for a format that torch does not serve on a CPU."""
    for name, value, native in (
        ("dtype", dtype, NATIVE_DTYPES),
        ("kv_dtype", kv_dtype, NATIVE_KV_FORMATS),
    ):
        if value in native:
            raise Refused(f"{name} {value!r} needs the native kernels of a CPU: {why_none}")
