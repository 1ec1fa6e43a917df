"""The fields of a config for the rotation of positions: two generations of names, one meaning.

Where both generations are there, Transformers lets one of them win; here they must agree.
"""

from typing import Any

from draftwerk.model.checkpoint.architectures import Json
from draftwerk.model.checkpoint.unsupported import Refused

ROPE_THETA = 10_000.0
"""What every one of these architectures means when it names none."""
REQUIRED = {
    "default": (),
    "linear": ("factor",),
    "llama3": (
        "factor",
        "low_freq_factor",
        "high_freq_factor",
        "original_max_position_embeddings",
    ),
    "yarn": (),
}
NUMBERS = (
    "rope_theta",
    "factor",
    "low_freq_factor",
    "high_freq_factor",
    "original_max_position_embeddings",
    "beta_fast",
    "beta_slow",
    "attention_factor",
    "mscale",
    "mscale_all_dim",
)
"""All of them above 0."""


def rope_of(hf: Json) -> tuple[float, Json]:
    """Return theta and the scaling. Raises Refused for a rule not served, or two that differ."""
    named = {key: hf[key] for key in ("rope_parameters", "rope_scaling") if hf.get(key)}
    for key, value in named.items():
        if not isinstance(value, dict) or any(isinstance(each, dict) for each in value.values()):
            raise Refused(f"{key} {value!r} is not supported (only one rule for all layers)")
    scaling: dict[str, Any] = dict(_one_of(named) or {})
    kinds = {key: scaling[key] for key in ("rope_type", "type") if scaling.get(key)}
    kind = _one_of(kinds) or "default"
    if kind not in REQUIRED:
        raise Refused(f"rope_scaling {kind!r} is not supported (only {', '.join(REQUIRED)})")
    for key in ("rope_theta", "partial_rotary_factor", "original_max_position_embeddings"):
        inside, outside = scaling.get(key), hf.get(key)
        values = {key: outside, f"{next(iter(named), 'rope_scaling')}.{key}": inside}
        found = _one_of({name: value for name, value in values.items() if value is not None})
        if found is not None:
            scaling[key] = found
    _check(kind, scaling)
    return float(scaling.get("rope_theta", ROPE_THETA)), scaling


def check_rope(hf: Json) -> None:
    """Raise Refused for a rule that is not served, or contradicts itself."""
    rope_of(hf)


def _one_of(values: dict[str, Any]) -> Any:
    """Return the value that all these fields have, None where there are none."""
    (first, value), *others = list(values.items()) or [("", None)]
    for name, other in others:
        if other != value:
            raise Refused(f"{first} {value!r} contradicts {name} {other!r}")
    return value


def _check(kind: str, scaling: Json) -> None:
    if scaling.get("partial_rotary_factor", 1.0) != 1.0:
        raise Refused("partial_rotary_factor is not supported")
    missing = [key for key in REQUIRED[kind] if scaling.get(key) is None]
    if missing:
        raise Refused(f"rope_scaling {kind!r} lacks {', '.join(missing)}")
    for key in NUMBERS:
        value = scaling.get(key)
        if value is None:
            continue
        if not isinstance(value, int | float) or isinstance(value, bool) or not value > 0:
            raise Refused(f"rope_scaling {kind!r} has {key} {value!r}, which is no number above 0")
    if kind == "llama3" and scaling["low_freq_factor"] >= scaling["high_freq_factor"]:
        raise Refused("rope_scaling 'llama3' has a low_freq_factor that is not below the high one")
