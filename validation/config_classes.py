"""Writes down the fields of the classes of Transformers that are served, with their defaults.

    python -m validation.config_classes

Reading a config then needs no Transformers, whose import takes seconds. A test holds that the file
says what the installed release does.
"""

from dataclasses import MISSING, fields
from math import inf
from typing import Any

import msgspec
import transformers

from draftwerk.model.checkpoint.architectures import ARCHITECTURES, OF_ANY_TEXT
from draftwerk.model.checkpoint.keys.class_fields import FILE
from draftwerk.model.checkpoint.keys.config_keys import WITHOUT_EFFECT

API: Any = transformers
USUAL_THETA, OTHER_THETA = 10_000.0, 12_345.0


def class_fields() -> dict[str, Any]:
    """Return by class what `ClassFields` has, and the names of fields of generation."""
    configs: dict[str, Any] = {}
    for row in ARCHITECTURES:
        for name in (row.hf_name, *row.wrappers):
            configs[name] = getattr(transformers, name).config_class
    configs |= {name: getattr(transformers, name).config_class for name in sorted(OF_ANY_TEXT)}
    return {
        "classes": {name: _of_class(config) for name, config in configs.items()},
        "generation": sorted(_generation_defaults()),
    }


def _of_class(config: Any) -> dict[str, Any]:
    base = {each.name for each in fields(API.PreTrainedConfig)}
    own = [each for each in fields(config) if each.name not in base]
    found = {each.name: each.default for each in own if each.default is not MISSING}
    default = config()
    rule = _own_rule(config)
    theta = getattr(config, "default_theta", USUAL_THETA)
    return {
        "defaults": {
            name: _written(value)
            for name, value in sorted({**found, **rule}.items())
            if name not in WITHOUT_EFFECT and name != "eos_token_id"
        },
        "without_default": sorted(each.name for each in own if each.default is MISSING),
        "theta": theta["global"] if isinstance(theta, dict) else theta,
        "local_theta": theta["local"] if isinstance(theta, dict) else None,
        "rules_by_kind": "full_attention" in (getattr(default, "rope_parameters", None) or {}),
        "rotary_share": _rotary_share(default),
        "ends": getattr(default, "eos_token_id", None),
    }


def _generation_defaults() -> dict[str, Any]:
    return API.GenerationConfig._get_default_generation_params()


def _rotary_share(default: Any) -> float | None:
    rule = getattr(default, "rope_parameters", None)
    return rule.get("partial_rotary_factor") if isinstance(rule, dict) else None


def _own_rule(config: Any) -> dict[str, Any]:
    """Return the rule of rotation where a class has one, without the theta that may replace its."""
    if not hasattr(config(), "rope_parameters"):
        return {}
    own, other = (config(**given).rope_parameters for given in ({}, {"rope_theta": OTHER_THETA}))
    if own == other:
        return {"rope_parameters": own}
    if own.get("rope_type", "default") == "default":
        return {}
    return {"rope_parameters": {name: own[name] for name in own if own[name] == other[name]}}


def _written(value: Any) -> Any:
    """Return a default as a config.json has it."""
    if isinstance(value, tuple):
        return [{"__float__": "Infinity"} if each == inf else each for each in value]
    return value


def encoded() -> bytes:
    """Return the file."""
    return msgspec.json.format(msgspec.json.encode(class_fields()), indent=1) + b"\n"


if __name__ == "__main__":
    FILE.write_bytes(encoded())
    print(f"{FILE}: {len(ARCHITECTURES)} classes")
