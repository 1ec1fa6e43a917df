"""The rule of rotation that a GGUF's metadata say, in the words of Transformers.

llama.cpp takes a factor without a type for a linear one. Magnitudes of cos and sin are, by YaRN,
(1 + 0.1 ln factor) / (1 + 0.1 m ln factor) with the multiplier m of the file, or 1 + 0.1 ln factor
without one; what else multiplies attention is a factor on that.
"""

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from draftwerk.model.checkpoint.families.architecture import GgufNames
from draftwerk.model.checkpoint.gguf_source import FACTORS, ROPE_DIVISORS, GgufSource, dequantised
from draftwerk.model.checkpoint.rope import rotary, yarn_magnitude
from draftwerk.model.checkpoint.unsupported import Refused

Lookup = Callable[..., Any]
"""Returns a value of the metadata by its key."""
LLAMA3_DEFAULTS = {
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
"""Values of every Llama 3.x; a GGUF does not name them."""
TURNS_OR_NOT = np.array([1, 1e30], np.float32)
"""Divisors of pairs of which only some turn."""
SCALING = ".rope.scaling."
KINDS = ("none", "linear", "yarn", "longrope")
MAGNITUDES = ("attn_factor", "yarn_attn_factor")
YARN = ("ext_factor", "beta_fast", "beta_slow", "log_multiplier")
USUAL = (None, -1.0, 1.0)
"""Shares of YaRN in a rotation: the default, which is all of it."""


def rope_scaling(source: GgufSource, rotary_size: int) -> dict[str, Any] | None:
    """Return the rule, None for the plain one. Raises Refused, naming the key."""
    assert source.row.gguf is not None
    return with_fields(source.row.gguf, source.get, _rule(source, rotary_size))


def with_fields(own: GgufNames, get: Lookup, rule: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return a rule with what a family has beside it."""
    beside = dict(own.rope(get))
    return {**(rule or {"rope_type": "default"}), **beside} if beside else rule


def _rule(source: GgufSource, rotary_size: int) -> dict[str, Any] | None:
    found = stated_rule(source.get)
    divisors = [name for name in (ROPE_DIVISORS, *FACTORS) if name in source.model.tensors]
    if found is not None and divisors:
        raise Refused(f"{divisors[0]} beside rope.scaling.factor or rope.scale_linear")
    if FACTORS[0] in divisors:
        return _longrope(source)
    if found is None or found["rope_type"] != "yarn":
        _check_plain(source.get)
    return found or _spelled_out(source, rotary_size)


def stated_rule(get: Lookup) -> dict[str, Any] | None:
    """Return the rule that metadata alone say. Raises Refused, naming the key."""
    kind = get(f"{SCALING}type", "linear")
    if kind not in KINDS:
        raise Refused(f"{SCALING[1:]}type {kind!r} is not supported")
    factor = get(f"{SCALING}factor") or get(".rope.scale_linear") or 1.0
    original = get(f"{SCALING}original_context_length")
    yarn = {name: get(f"{SCALING}yarn_{name}") for name in YARN}
    if kind == "none" or factor == 1.0:
        return None
    if kind != "yarn":
        return {"rope_type": "linear", "factor": factor}
    if yarn["ext_factor"] not in USUAL:
        raise Refused(f"{SCALING[1:]}yarn_ext_factor {yarn['ext_factor']} is not supported")
    scaling = {
        "rope_type": "yarn",
        "factor": factor,
        "original_max_position_embeddings": original or None,
        "beta_fast": yarn["beta_fast"],
        "beta_slow": yarn["beta_slow"],
        "attention_factor": _magnitude(factor, yarn["log_multiplier"] or 0.0, _multiplied(get)),
    }
    return {key: value for key, value in scaling.items() if value is not None}


def _magnitude(factor: float, multiplier: float, multiplied: float) -> float | None:
    """Return what cos and sin are multiplied by; None for YaRN's own."""
    if not multiplier and multiplied == 1.0:
        return None
    return multiplied * yarn_magnitude(factor) / yarn_magnitude(factor, multiplier)


def _multiplied(get: Lookup) -> float:
    found = {name: get(SCALING + name, 1.0) for name in MAGNITUDES}
    for name, value in found.items():
        if not value > 0:
            raise Refused(f"{SCALING[1:]}{name} {value} is no number above 0")
    return prod(found.values())


def _check_plain(get: Lookup) -> None:
    """Refuse what only YaRN reads."""
    for name, usual in (*((each, 1.0) for each in MAGNITUDES), ("yarn_ext_factor", 0.0)):
        if (value := get(SCALING + name, usual)) not in (usual, -1.0):
            raise Refused(f"{SCALING[1:]}{name} {value} is not supported without YaRN")


def _longrope(source: GgufSource) -> dict[str, Any]:
    """Return Phi's rule, whose divisors are tensors."""
    short, long = (dequantised(source.model.tensors[name]).flatten() for name in FACTORS)
    found = {
        "rope_type": "longrope",
        "short_factor": short.tolist(),
        "long_factor": long.tolist(),
        "original_max_position_embeddings": source.get(f"{SCALING}original_context_length"),
    }
    multiplied = _multiplied(source.get)
    says = source.get(f"{SCALING}attn_factor") is not None
    return {**found, "attention_factor": multiplied} if says else found


def _spelled_out(source: GgufSource, rotary_size: int) -> dict[str, Any] | None:
    """Read Llama 3.1's rule, or Gemma 4's, back from what `rope_freqs.weight` spells out."""
    stored = source.model.tensors.get(ROPE_DIVISORS)
    if stored is None:
        return None
    divisors = dequantised(stored)
    if np.isin(divisors, TURNS_OR_NOT).all():
        share = float(np.mean(divisors == 1))
        return {"rope_type": "proportional", "partial_rotary_factor": share}
    scaling = {"rope_type": "llama3", "factor": float(np.max(divisors)), **LLAMA3_DEFAULTS}
    theta = source.get(".rope.freq_base", 10_000.0)
    plain, _ = rotary(rotary_size, theta, {}, 0)
    scaled, _ = rotary(rotary_size, theta, scaling, 0)
    if not np.allclose(np.divide(plain, scaled), divisors, rtol=1e-3):
        raise Refused(f"{ROPE_DIVISORS} follows neither Llama 3.1's rule nor Gemma 4's")
    return scaling
