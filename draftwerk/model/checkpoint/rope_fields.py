"""The fields of a config for the rotation of positions: two generations of names, one meaning.

Where both generations are there, Transformers lets one of them win; here they must agree.
"""

from typing import Any

from draftwerk.model.checkpoint.architectures import architecture_of
from draftwerk.model.checkpoint.families.architecture import Json
from draftwerk.model.checkpoint.supported import sizes_of
from draftwerk.model.checkpoint.unsupported import Refused

GLOBAL, LOCAL = "full_attention", "sliding_attention"
"""The names of rules where there are two."""
LOCAL_THETA = "rope_local_base_freq"
REQUIRED = {
    "default": (),
    "dynamic": ("factor",),
    "linear": ("factor",),
    "llama3": (
        "factor",
        "low_freq_factor",
        "high_freq_factor",
        "original_max_position_embeddings",
    ),
    "yarn": (),
    "ntk_alpha": ("alpha",),
    "longrope": ("short_factor", "long_factor", "original_max_position_embeddings"),
    "proportional": (),
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
WHOLE_HEADS = ("dynamic", "proportional")
"""Rules of classes whose heads turn as a whole."""
KNOWN = {
    *NUMBERS,
    *(key for keys in REQUIRED.values() for key in keys),
    *("rope_type", "type", "truncate", "partial_rotary_factor", "llama_4_scaling_beta", "alpha"),
    # Angles by time, height and width are one position in a text.
    *("mrope_section", "mrope_interleaved", "max_position_embeddings", "finetuned"),
}


def rope_of(hf: Json, layers: str = "") -> tuple[float, Json]:
    """Return theta and the scaling of all layers, or of those that slide (LOCAL).

    Raises Refused for a rule not served, or two that differ.
    """
    row = architecture_of(hf)
    fields = row.fields
    hf, theta = _rule(hf, layers), fields.theta
    if layers == LOCAL and fields.local_theta is not None:
        theta = fields.local_theta
    named = {key: hf[key] for key in ("rope_parameters", "rope_scaling") if hf.get(key)}
    for key, value in named.items():
        if not isinstance(value, dict) or any(isinstance(each, dict) for each in value.values()):
            raise Refused(f"{key} {value!r} is not supported (only one rule for all layers)")
    scaling: dict[str, Any] = dict(_one_of(named) or {})
    kinds = {key: scaling[key] for key in ("rope_type", "type") if scaling.get(key)}
    kind = str(_one_of(kinds) or "default")
    kind = row.rope_types.get(kind, kind)
    if kind not in REQUIRED:
        raise Refused(f"rope_scaling {kind!r} is not supported (only {', '.join(REQUIRED)})")
    for key in ("rope_theta", "partial_rotary_factor", "original_max_position_embeddings"):
        inside, outside = scaling.get(key), hf.get(key)
        values = {key: outside, f"{next(iter(named), 'rope_scaling')}.{key}": inside}
        found = _one_of({name: value for name, value in values.items() if value is not None})
        if found is not None:
            scaling[key] = found
    for key, value in scaling.items():
        if value is not None and key not in KNOWN:
            raise Refused(f"{next(iter(named))} {key} {value!r} is not supported")
    if GLOBAL in (fields.defaults.get("rope_parameters") or {}) and "rope_theta" not in scaling:
        raise Refused("rope_parameters lacks rope_theta")
    scaling["rope_type"] = kind
    _check(kind, scaling)
    if fields.rotary_share is not None and kind in WHOLE_HEADS:
        raise Refused(f"rope_scaling {kind!r} is not supported with partial_rotary_factor")
    if fields.rotary_share is not None:
        scaling.setdefault("partial_rotary_factor", fields.rotary_share)
    rotary_dimensions(hf, scaling, layers)
    return float(scaling.get("rope_theta") or theta), scaling


def _rule(hf: Json, layers: str) -> Json:
    """Return a config with the one rule of these layers, where it has one for each kind."""
    nested = hf.get("rope_parameters") or {}
    row = architecture_of(hf)
    by_kind = isinstance(nested, dict) and nested.keys() <= {GLOBAL, LOCAL}
    has_two = row.fields.rules_by_kind
    if has_two and not by_kind:
        raise Refused(f"rope_parameters of this class are for {GLOBAL} and {LOCAL}")
    if by_kind and nested and hf.get("rope_scaling"):
        raise Refused("rope_scaling beside rope_parameters is not supported")
    if has_two and "rope_type" not in (hf.get("rope_scaling") or {"rope_type"}):
        raise Refused("rope_scaling of this class names its rule by rope_type")
    if not has_two or not by_kind:
        return hf
    plain = {key: value for key, value in hf.items() if key != "rope_parameters"}
    if nested:
        return plain | {"rope_scaling": None, "rope_parameters": nested.get(layers or GLOBAL)}
    if layers == LOCAL:
        plain |= {"rope_scaling": None, "rope_theta": hf.get(LOCAL_THETA)}
    return plain


def rotary_dimensions(hf: Json, scaling: Json, layers: str = "") -> int:
    """Return how many of a head's dimensions turn. Raises Refused for an odd number."""
    share = scaling.get("partial_rotary_factor", 1.0)
    is_proportional = scaling["rope_type"] == "proportional"
    if share != 1.0 and architecture_of(hf).fields.rotary_share is None and not is_proportional:
        raise Refused("partial_rotary_factor is not supported")
    if not isinstance(share, int | float) or not 0 < share <= 1:
        raise Refused(f"partial_rotary_factor {share!r} is no share")
    size = _head_size(hf, layers)
    if not is_proportional:
        size = int(size * share)
    if size < 2 or size % 2:
        raise Refused(f"partial_rotary_factor {share!r} leaves {size} dimensions: no pairs")
    for key in ("short_factor", "long_factor"):
        if key in scaling and len(scaling[key]) != size // 2:
            raise Refused(f"{key} has {len(scaling[key])} numbers, not {size // 2}")
    return size


def _head_size(hf: Json, layers: str) -> int:
    """Return the size of a head of all layers, or of those that slide (LOCAL).

    Raises Refused where those of one rotation differ.
    """
    which, usual = layers == LOCAL, sizes_of(hf).head_size
    kinds = architecture_of(hf).layers(hf)
    sizes = {kind.head_size or usual for kind in kinds if kind.rotary == which}
    if len(sizes) > 1:
        raise Refused(f"per_layer_config has layers turn alike whose head_dim differs: {sizes}")
    return next(iter(sizes), usual)


def check_rope(hf: Json) -> None:
    """Raise Refused for a rule that is not served, or contradicts itself."""
    for layers in (GLOBAL, LOCAL):
        rope_of(hf, layers)


def _one_of(values: dict[str, Any]) -> Any:
    """Return the value that all these fields have, None where there are none."""
    (first, value), *others = list(values.items()) or [("", None)]
    for name, other in others:
        if other != value:
            raise Refused(f"{first} {value!r} contradicts {name} {other!r}")
    return value


def _check(kind: str, scaling: Json) -> None:
    missing = [key for key in REQUIRED[kind] if scaling.get(key) is None]
    if missing:
        raise Refused(f"rope_scaling {kind!r} lacks {', '.join(missing)}")
    for key in ("rope_theta", "alpha") if kind == "ntk_alpha" else NUMBERS:
        value = scaling.get(key)
        if value is None:
            continue
        if not isinstance(value, int | float) or isinstance(value, bool) or not value > 0:
            raise Refused(f"rope_scaling {kind!r} has {key} {value!r}, which is no number above 0")
    for key in ("short_factor", "long_factor"):
        numbers = scaling.get(key, [])
        if not isinstance(numbers, list) or not all(
            isinstance(each, int | float) and each > 0 for each in numbers
        ):
            raise Refused(f"rope_scaling {kind!r} has {key} that is no list of numbers above 0")
    if kind == "yarn" and scaling.get("rope_theta") == 1:
        raise Refused("rope_scaling 'yarn' has rope_theta 1, by which all dimensions turn alike")
    if kind == "llama3" and scaling["low_freq_factor"] >= scaling["high_freq_factor"]:
        raise Refused("rope_scaling 'llama3' has a low_freq_factor that is not below the high one")
