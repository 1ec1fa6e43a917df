"""The compiled library's functions, typed; ctypes releases the GIL while one runs."""

import ctypes
import functools
import logging

from draftwerk.model.native.build import NativeUnavailable, library_path, rebuild
from draftwerk.model.native.calls.declarations import functions
from draftwerk.model.native.calls.structs import STRUCTS

log = logging.getLogger("draftwerk")


@functools.cache
def library(isa: str | None = None) -> ctypes.CDLL:
    """Return the loaded library of an instruction set, by default the one to be used here.

    Raises NativeUnavailable where it cannot be built. Its functions that can refuse raise
    ValueError.
    """
    loaded = _loaded(isa)
    for name, result, arguments in functions(STRUCTS):
        function = getattr(loaded, name)
        function.restype, function.argtypes = result, arguments
        if result is ctypes.c_char_p:
            function.errcheck = _raise_refusal
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
