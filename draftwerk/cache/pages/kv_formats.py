"""The table of formats that keys and values are kept in, beside that of the activations.

A new one is a row here, a name in `KvDtype`, and the kernels that store and read it: of a CPU's a
file in model/native/source/attention/kv, and a row of the table beside that folder. Settings,
approximations, plans of memory, refusals, pages and fingerprints follow the table.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

KvDtype = Literal["auto", "int8", "int4", "fp8"]
"""`--kv-dtype`; auto is the activations' format."""


class PagedHeads(NamedTuple):
    """The heads of a model that pages are to hold."""

    convolves: bool
    """Whether some layers keep inputs of a convolution."""
    sizes: frozenset[int] = frozenset()
    """The sizes of all layers' heads."""


class KvFormat(NamedTuple):
    """All that the rest of the program knows of a format."""

    name: str
    meaning: str
    """The exactness that is lost, in one line."""
    bits: float
    """The bits of a number, in the mean of keys and values."""
    scale_bytes: int = 0
    """Behind a head's key, and behind its value."""
    native_code: int | None = None
    """The row of source/attention/kv_formats.cpp; None: a GPU's kernels have it."""
    learns: bool = False
    """Whether a model that is whole learns how to keep keys, as it is loaded."""
    refusals: tuple[tuple[str, Callable[[PagedHeads], bool]], ...] = ()
    """The words with which a model is refused, and where."""

    def head_bytes(self, size: int) -> int:
        """Return what a key or a value of a head takes."""
        return int(self.bits * size) // 8 + self.scale_bytes


Refusal = tuple[str, Callable[[PagedHeads], bool]]
CONVOLVES: Refusal = (
    "layers that convolve keep their inputs in bf16 or fp32",
    lambda heads: heads.convolves,
)
CODE_UNIT = 16
"""Heads of int4 have a multiple of so many numbers."""
UNEVEN: Refusal = (
    f"heads must be of one size, a multiple of {CODE_UNIT}",
    lambda heads: len(heads.sizes) != 1 or any(size % CODE_UNIT for size in heads.sizes),
)
ROWS: tuple[KvFormat, ...] = (
    KvFormat(
        "int8",
        "keys and values in 8 bits, a scale a head",
        bits=8,
        scale_bytes=4,
        native_code=2,
        refusals=(CONVOLVES,),
    ),
    KvFormat(
        "int4",
        "keys in 5 bits and values in 4, turned by a Hadamard matrix, a scale a head",
        bits=4.5,
        scale_bytes=2,
        native_code=3,
        learns=True,
        refusals=(CONVOLVES, UNEVEN),
    ),
    KvFormat("fp8", "keys and values in 8-bit floats", bits=8),
)
KV_FORMATS = {row.name: row for row in ROWS}
NATIVE_KV_FORMATS = {name: row for name, row in KV_FORMATS.items() if row.native_code is not None}
"""The formats of a CPU's kernels."""


def needed_for(kv_dtype: str) -> str:
    """Return what computes a format."""
    native = kv_dtype in NATIVE_KV_FORMATS
    return "the native kernels of a CPU" if native else "a GPU, and Triton"


def learns(kv_dtype: str) -> bool:
    return kv_dtype in KV_FORMATS and KV_FORMATS[kv_dtype].learns


def refusal_of(kv_dtype: str, heads: PagedHeads) -> str:
    """Return why a model cannot be kept in a format; empty where it can."""
    row = KV_FORMATS.get(kv_dtype)
    reasons = (words for words, meets in row.refusals if meets(heads)) if row else iter(())
    return next((f"kv_dtype {kv_dtype}: {words}" for words in reasons), "")
