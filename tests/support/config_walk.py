"""Changes of a config, a field each: other values, and the field left out.

The fields are those of the class, those that its modelling code reads of a config, and those
of all other classes that are served.
"""

import dataclasses
import inspect
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from draftwerk.model.checkpoint.keys.class_fields import all_names
from tests.support.tiny_models import FAMILIES

Json = dict[str, Any]
ACTIVATIONS = ("silu", "gelu", "gelu_pytorch_tanh", "relu", "relu2")
WORDS: dict[str, tuple[Any, ...]] = {
    "hidden_act": ACTIVATIONS,
    "hidden_activation": ACTIVATIONS,
    "position_embedding_type": ("rope", "nope", None),
    "use_bidirectional_attention": ("all", "vision", True, None),
    "is_causal": (True, False, None, 0, "no"),
    "mamba_d_head": (8, 16),
    "dtype": ("bfloat16",),
    **dict.fromkeys(("_experts_implementation", "experts_implementation"), ("eager",)),
    **{"cache_implementation": ("static", "hybrid"), "mtp_layer_types": (["full_attention"],)},
    **{"id2label": ({"0": "no", "1": "yes"},), "num_labels": (2, 3), "use_return_dict": ()},
    "vision_feature_select_strategy": ("default", "full"),
}
"""Values of fields that hold words."""
RULES: dict[str, Json] = {
    "default": {},
    "linear": {"factor": 4.0},
    "dynamic": {"factor": 4.0},
    "llama3": {
        **{"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
        "original_max_position_embeddings": 64,
    },
    "yarn": {
        **{"factor": 4.0, "original_max_position_embeddings": 64, "beta_fast": 16.0},
        **{"beta_slow": 2.0, "mscale": 0.7, "mscale_all_dim": 0.5, "truncate": False},
    },
    "longrope": {"factor": 4.0, "original_max_position_embeddings": 4},
    "proportional": {"partial_rotary_factor": 0.5},
}
"""Rules of rotation, with what each reads."""
READ_BY_ALL = (
    *("is_causal", "per_layer_config", "attention_chunk_size", "rope_theta", "rope_scaling"),
    *("partial_rotary_factor", "head_dim", "rope_local_base_freq", "sliding_window_pattern"),
    *("original_max_position_embeddings", "global_head_dim", "num_global_key_value_heads"),
    *("full_attention_interval", "block_ff_dim", "tie_embedding", "a_word_of_no_list"),
)
SLIDING = "sliding_attention"
NOT_FIELDS = {"architectures", "model_type", "text_config", "quantization_config"}
"""What makes another kind of file, which other walks have."""


class Change(NamedTuple):
    """A config that differs in one field."""

    field: str
    how: str
    config: Json


def changes_of(family: str, config: Json, beside: Iterable[str] = ()) -> Iterator[Change]:
    """Yield the changes of a family's config, and of more fields `beside`."""
    types = {each.name: str(each.type) for each in dataclasses.fields(_config_class(family))}
    read = _names_read(family)
    listed = {*READ_BY_ALL, *beside} | all_names()
    for name in [*config, *sorted((read | listed) - config.keys())]:
        if name in NOT_FIELDS:
            continue
        if name in config:
            rest = {key: value for key, value in config.items() if key != name}
            yield Change(name, "left out", rest)
            yield Change(name, "null", {**config, name: None})
        for value in _others(name, config.get(name), types.get(name, "int | bool | float")):
            yield Change(name, f"{value!r}"[:40], {**config, name: value})
    yield from _rotations(config)


def _config_class(family: str) -> Any:
    return FAMILIES[family].config_class


def _names_read(family: str) -> set[str]:
    source = inspect.getsource(inspect.getmodule(FAMILIES[family]) or FAMILIES[family])
    found = re.findall(r"config\.([a-z]\w*)(?![\w(])", source)
    return {*found, *re.findall(r'getattr\((?:self\.)?config, "([a-z]\w*)"', source)} - METHODS


METHODS = {"get_text_config", "to_dict"}


def _others(name: str, value: Any, kind: str) -> list[Any]:
    """Return other values of a field."""
    if name in WORDS:
        return [each for each in WORDS[name] if each != value]
    match value:
        case bool():
            return [not value]
        case int():
            return [value + 1, 2 * value, 0, *([value - 1] if value > 1 else [])]
        case float():
            return [1.5 * value if value else 0.5, *([0.3] if value < 100 else [])]
        case []:
            return [[0]]
        case list() if all(isinstance(each, str) for each in value):
            kinds = [*dict.fromkeys(value), "full_attention", SLIDING, "chunked_attention"]
            alike = [[kind] * len(value) for kind in dict.fromkeys(kinds)]
            return [value[::-1], value[:-1], [*value, value[-1]], *alike]
        case list() if all(isinstance(each, int) for each in value):
            return [value[::-1], [0] * len(value), [1] * len(value)]
        case list():
            return [[0.5, 2.0], value[::-1]]
        case dict():
            return [{}, {"0": {"head_dim": 4}}, {"a_word": 1}]
        case None:
            typed = (("bool", True), ("int", 2), ("float", 0.7), ("list", [0, 1]))
            return [other for word, other in typed if word in kind]
        case _:
            return []


def _rotations(config: Json) -> Iterator[Change]:
    """Yield rules of rotation under both names, and each without a field or with another value."""
    given = config.get("rope_parameters") or {}
    theta = given.get("rope_theta", 10_000.0)
    plain = {key: value for key, value in config.items() if key != "rope_parameters"}
    for kind, fields in RULES.items():
        rule: Json = {"rope_type": kind, **fields}
        if kind == "longrope":
            pairs = _pairs(config)
            rule["short_factor"] = [1.0 + 0.1 * i for i in range(pairs)]
            rule["long_factor"] = [1.0 + 0.5 * i for i in range(pairs)]
        yield Change("rope_scaling", kind, {**plain, "rope_scaling": rule, "rope_theta": theta})
        whole = {**rule, "rope_theta": theta}
        yield Change("rope_parameters", kind, {**plain, "rope_parameters": whole})
        yield from _within(plain, whole)
    if given:
        yield from _within(plain, given)
    yield from _spellings(config, plain, theta)


def _spellings(config: Json, plain: Json, theta: float) -> Iterator[Change]:
    """Yield rules in words of several years, alone and beside another that says otherwise."""
    linear: Json = {"rope_type": "linear", "factor": 4.0}
    old: Json = {"type": "linear", "factor": 4.0}
    by_kind = {
        "full_attention": {**linear, "rope_theta": theta},
        SLIDING: {"rope_type": "default", "rope_theta": 2 * theta},
    }
    themes: dict[str, Json] = {
        "an old word": {"rope_scaling": old, "rope_theta": theta},
        "two words": {"rope_scaling": {**old, "rope_type": "dynamic"}, "rope_theta": theta},
        "an old word beside none": {"rope_parameters": {**old, "rope_theta": theta}},
        "two thetas": {"rope_parameters": {**linear, "rope_theta": theta}, "rope_theta": 2 * theta},
        "a theta of old beside a rule": {"rope_parameters": linear, "rope_theta": 2 * theta},
        "a theta in an old rule": {"rope_scaling": {**linear, "rope_theta": 2 * theta}},
        "two rules": {
            **{"rope_parameters": {"rope_type": "default", "rope_theta": theta}},
            **{"rope_scaling": linear},
        },
        "by kind": {"rope_parameters": by_kind},
        "by kind, of old": {"rope_scaling": by_kind},
        "one kind": {"rope_parameters": {"full_attention": by_kind["full_attention"]}},
        "nothing": {"rope_parameters": {}},
        "null twice": {"rope_parameters": None, "rope_scaling": None, "rope_theta": 2 * theta},
    }
    for how, fields in themes.items():
        yield Change("rope_parameters", how, {**plain, **fields})
    default = {"rope_type": "default", "rope_theta": theta}
    shared = {**plain, "rope_parameters": default, "partial_rotary_factor": 0.5}
    yield Change("partial_rotary_factor", "beside a rule", shared)
    yield Change("rope_scaling", "beside the own rule", {**config, "rope_scaling": linear})
    yield Change("rope_theta", "beside the own rule", {**config, "rope_theta": 2 * theta})


def _within(plain: Json, rule: Json) -> Iterator[Change]:
    for name, value in rule.items():
        if isinstance(value, dict):
            for inner in _within({}, value):
                yield Change(
                    inner.field,
                    f"{name}: {inner.how}",
                    {**plain, "rope_parameters": {**rule, name: inner.config["rope_parameters"]}},
                )
            continue
        rest = {key: each for key, each in rule.items() if key != name}
        yield Change(name, "left out of its rule", {**plain, "rope_parameters": rest})
        for other in _others(name, value, ""):
            how = f"{other!r} in its rule"
            yield Change(name, how, {**plain, "rope_parameters": {**rule, name: other}})
    for name in ("attention_factor", "partial_rotary_factor", "a_word_of_no_list"):
        if name not in rule:
            how = f"0.5 in {rule.get('rope_type')}"
            yield Change(name, how, {**plain, "rope_parameters": {**rule, name: 0.5}})


def _pairs(config: Json) -> int:
    size = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    return size // 2
