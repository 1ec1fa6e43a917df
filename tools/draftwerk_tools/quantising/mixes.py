"""Which type each matrix of a file has, as llama.cpp's quantiser chooses them.

A mix is named as llama.cpp names it: Q4_K_M holds mostly Q4_K, and Q6_K where errors cost most.
Source: llama_tensor_get_type in llama-quant.cpp.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType, LlamaFileType

HEAD, EMBEDDING = "output.weight", "token_embd.weight"
EXPERTS, SHARED = "_exps", "_shexp"
"""Ends of the names of matrices of all experts, and of what every token has beside them."""
FEW_EXPERTS = 8
"""Mixtral's: there all else is few bytes."""
WHOLE, NARROW = ("F32", "BF16"), ("Q2_K", "Q3_K", "Q4_K", "IQ4_NL", "IQ4_XS")
SIXTEEN_BITS = "F16"
"""For rows that are no whole blocks of any type."""
NARROWER = {
    "Q2_K": "IQ4_NL",
    "Q3_K": "IQ4_NL",
    "IQ4_XS": "IQ4_NL",
    "Q4_K": "Q5_0",
    "Q5_K": "Q5_1",
    "Q6_K": "Q8_0",
}
"""The substitute for a type of 256 inputs where rows are no multiple of it."""


class Place(NamedTuple):
    """Where a matrix is in its model."""

    layer: int
    layer_count: int
    shares_keys: bool
    """Whether four query heads or more read one head of keys."""
    experts: int = 0

    @property
    def is_sensitive(self) -> bool:
        """Whether it is in the first or last eighth of the layers, or a third one between."""
        first, last = self.layer_count // 8, 7 * self.layer_count // 8
        return self.layer < first or self.layer >= last or (self.layer - first) % 3 == 2


KindChoice = Callable[[Place], str]


class Mix(NamedTuple):
    """A type for most matrices, and others for some, by GGUF's names."""

    file_type: LlamaFileType
    kind: str
    choices: Mapping[str, KindChoice] = MappingProxyType({})
    head: str = "Q6_K"


def _always(kind: str) -> KindChoice:
    return lambda place: kind


def _sensitive(kind: str, otherwise: str) -> KindChoice:
    return lambda place: kind if place.is_sensitive else otherwise


def _first(kind: str, share: int, otherwise: str) -> KindChoice:
    """Return a type for the first of so many equal parts of the layers."""
    return lambda place: kind if place.layer < place.layer_count // share else otherwise


def _first_few(kind: str, count: int, otherwise: str) -> KindChoice:
    return lambda place: kind if place.layer < count else otherwise


def _sharing(kind: str, otherwise: str) -> KindChoice:
    return lambda place: kind if place.shares_keys else otherwise


def _sixes(otherwise: str) -> dict[str, KindChoice]:
    return {"attn_v": _sensitive("Q6_K", otherwise), "ffn_down": _sensitive("Q6_K", otherwise)}


def _nonlinear(kind: str) -> dict[str, KindChoice]:
    return {"attn_v": _sharing("Q5_K", kind), "ffn_down": _first("Q5_K", 8, kind)}


MIXES = {
    "F32": Mix(LlamaFileType.ALL_F32, "F32", head="F32"),
    "BF16": Mix(LlamaFileType.MOSTLY_BF16, "BF16", head="BF16"),
    "Q8_0": Mix(LlamaFileType.MOSTLY_Q8_0, "Q8_0", head="Q8_0"),
    "Q6_K": Mix(LlamaFileType.MOSTLY_Q6_K, "Q6_K"),
    "Q5_K_M": Mix(LlamaFileType.MOSTLY_Q5_K_M, "Q5_K", _sixes("Q5_K")),
    "Q5_K_S": Mix(LlamaFileType.MOSTLY_Q5_K_S, "Q5_K"),
    "Q5_1": Mix(LlamaFileType.MOSTLY_Q5_1, "Q5_1"),
    "Q5_0": Mix(LlamaFileType.MOSTLY_Q5_0, "Q5_0"),
    "Q4_K_M": Mix(LlamaFileType.MOSTLY_Q4_K_M, "Q4_K", _sixes("Q4_K")),
    "Q4_K_S": Mix(
        LlamaFileType.MOSTLY_Q4_K_S,
        "Q4_K",
        {"attn_v": _first_few("Q5_K", 4, "Q4_K"), "ffn_down": _first("Q5_K", 8, "Q4_K")},
    ),
    "Q4_1": Mix(LlamaFileType.MOSTLY_Q4_1, "Q4_1"),
    "Q4_0": Mix(LlamaFileType.MOSTLY_Q4_0, "Q4_0"),
    "IQ4_NL": Mix(LlamaFileType.MOSTLY_IQ4_NL, "IQ4_NL", _nonlinear("IQ4_NL")),
    "IQ4_XS": Mix(LlamaFileType.MOSTLY_IQ4_XS, "IQ4_XS", _nonlinear("IQ4_XS")),
    "MXFP4": Mix(LlamaFileType.MOSTLY_MXFP4_MOE, "MXFP4", head="Q8_0"),
    "Q3_K_L": Mix(
        LlamaFileType.MOSTLY_Q3_K_L,
        "Q3_K",
        {name: _always("Q5_K") for name in ("attn_v", "ffn_down", "attn_output")},
    ),
    "Q3_K_M": Mix(
        LlamaFileType.MOSTLY_Q3_K_M,
        "Q3_K",
        {
            "attn_v": _first_few("Q5_K", 2, "Q4_K"),
            "ffn_down": _first("Q5_K", 16, "Q4_K"),
            "attn_output": _always("Q4_K"),
        },
    ),
    "Q3_K_S": Mix(LlamaFileType.MOSTLY_Q3_K_S, "Q3_K"),
    "Q2_K": Mix(
        LlamaFileType.MOSTLY_Q2_K,
        "Q2_K",
        {
            "attn_v": _sharing("Q4_K", "Q3_K"),
            "ffn_down": _always("Q3_K"),
            "attn_output": _always("Q3_K"),
        },
    ),
}


def kind_of(mix: Mix, name: str, width: int, place: Place, is_tied: bool) -> str:
    """Return the type of a matrix, by its name in GGUF and the width of its rows."""
    if name == HEAD or (is_tied and name == EMBEDDING):
        return fitting(mix.head, width)
    stem = name.split(".")[-2]
    choice = mix.choices.get(stem.removesuffix(EXPERTS).removesuffix(SHARED))
    kind = mix.kind if choice is None else choice(place)
    if place.experts:
        kind = _beside_experts(mix, stem, kind, place.experts)
    return fitting(kind, width)


def _beside_experts(mix: Mix, stem: str, kind: str, experts: int) -> str:
    """Return the type of a matrix in a model most of whose bytes are experts."""
    if stem.endswith(EXPERTS):
        return kind
    if mix.kind == "MXFP4":
        return "Q8_0"
    if experts != FEW_EXPERTS or mix.kind in WHOLE:
        return kind
    if stem in ("attn_k", "attn_v"):
        return "Q8_0"
    return "Q5_K" if stem == "attn_output" and mix.kind in NARROW else kind


def fitting(kind: str, width: int) -> str:
    """Return a type whose blocks rows of a width are made of."""
    while width % GGML_QUANT_SIZES[GGMLQuantizationType[kind]][0]:
        kind = NARROWER.get(kind, SIXTEEN_BITS)
    return kind
