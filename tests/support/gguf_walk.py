"""Changes of a GGUF's metadata, a key each, and what they are to a config of Transformers.

The keys are those of llama.cpp's own list, as the `gguf` package has it.
"""

from collections.abc import Callable, Iterator
from math import log
from typing import Any, NamedTuple

import gguf
from gguf.constants import GGUFValueType, Keys
from gguf.gguf_writer import GGUFValue

PREFIX = "{arch}"
Json = dict[str, Any]
LEFT_OUT: Any = object()
NOT_TAKEN: Json = {"num_hidden_layers": -1}
"""What no class takes: a value of which nobody but llama.cpp makes something."""
SLIDES = ("full_attention", "sliding_attention")


class KeyChange(NamedTuple):
    """A key of the metadata with another value, or without one."""

    key: str
    """Behind the architecture's name."""
    value: Any

    def apply(self, writer: gguf.GGUFWriter, architecture: str) -> None:
        fields, key = writer.kv_data[0], architecture + self.key
        fields.pop(key, None)
        if self.value is not LEFT_OUT:
            fields[key] = _typed(self.value)


def _typed(value: Any) -> GGUFValue:
    first = value[0] if isinstance(value, list) else value
    kind = {
        **{bool: GGUFValueType.BOOL, int: GGUFValueType.UINT32},
        **{float: GGUFValueType.FLOAT32, str: GGUFValueType.STRING},
    }[type(first)]
    if isinstance(value, list):
        return GGUFValue(value, GGUFValueType.ARRAY, sub_type=kind)
    return GGUFValue(value, kind)


def all_keys() -> list[str]:
    """Return the keys that stand behind an architecture's name."""
    return sorted(_within(Keys))


def _within(names: type) -> Iterator[str]:
    for name, value in vars(names).items():
        if isinstance(value, type):
            yield from _within(value)
        elif isinstance(value, str) and value.startswith(PREFIX) and not name.startswith("_"):
            key = value.removeprefix(PREFIX)
            yield key.replace("{dense}", "dense_2")


def key_changes(fields: dict[str, GGUFValue], architecture: str) -> Iterator[KeyChange]:
    """Yield changes of a file's metadata."""
    present = {
        name.removeprefix(architecture): value.value
        for name, value in fields.items()
        if name.startswith(f"{architecture}.")
    }
    for key in [*present, *sorted({*all_keys(), ".rope.scale_linear"} - present.keys())]:
        if key in present:
            yield KeyChange(key, LEFT_OUT)
        for value in _others(key, present.get(key)):
            yield KeyChange(key, value)
    yield KeyChange(".a_word_of_no_list", 3)


def _others(key: str, value: Any) -> list[Any]:
    if key == ".rope.scaling.type":
        return [each for each in ("none", "linear", "yarn", "longrope", "spiral") if each != value]
    match value:
        case bool():
            return [not value]
        case int():
            return [value + 1, *([value - 1] if value > 1 else [])]
        case float():
            return [1.5 * value if value else 0.5]
        case list():
            return [value[::-1]]
        case None:
            return [2, 0.7, True, False]
        case _:
            return []


Effect = Callable[[Any, Json], Json]


def _field(name: str) -> Effect:
    return lambda value, config: {name: value}


def _rule(name: str, kind: str = "full_attention") -> Effect:
    """Return what changes a field of a rule of rotation, or of that of a kind of layers."""

    def effect(value: Any, config: Json) -> Json:
        rules = config["rope_parameters"]
        if kind in rules:
            return {"rope_parameters": {**rules, kind: {**rules[kind], name: value}}}
        return {"rope_parameters": {**rules, name: value}}

    return effect


def _theta(value: Any, config: Json) -> Json:
    """One number is for all layers, where those with a window have none of their own."""
    rules = config["rope_parameters"]
    thetas = {each["rope_theta"] for each in rules.values() if isinstance(each, dict)}
    if len(thetas) != 1:
        return _rule("rope_theta")(value, config)
    return {
        "rope_parameters": {kind: {**rule, "rope_theta": value} for kind, rule in rules.items()}
    }


def _scaled(value: Any, config: Json) -> Json:
    """A factor without a type is a linear one, and 0 is none."""
    rules = config["rope_parameters"]
    rule = rules.get("full_attention", rules)
    kind = "yarn" if rule.get("rope_type") == "yarn" else "linear"
    scaled = {**rule, "rope_type": kind, "factor": value or 1.0}
    return {"rope_parameters": {**rules, "full_attention": scaled} if rule is not rules else scaled}


def _multiplied(value: Any, config: Json) -> Json:
    rule = config["rope_parameters"]
    if "factor" not in rule:
        return {} if value == 1 else NOT_TAKEN
    grown = 0.1 * log(rule["factor"])
    shared = 1 + (rule.get("mscale_all_dim") or 0.0) * grown
    own = rule.get("attention_factor") or (1 + grown) / shared
    return {"rope_parameters": {**rule, "attention_factor": value * own}}


OF_YARN = {"factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim"}


def _typed_rule(value: Any, config: Json) -> Json:
    rule = config["rope_parameters"]
    if value == "none" or "factor" not in rule:
        rest = {name: rule[name] for name in rule if name not in OF_YARN}
        return {"rope_parameters": {**rest, "rope_type": "default"}}
    kind = "yarn" if value == "yarn" else "linear"
    return {"rope_parameters": {**rule, "rope_type": kind}}


def _logits(value: Any, config: Json) -> Json:
    return {"logit_scale" if "logit_scale" in config else "logits_scaling": value}


def _used(value: Any, config: Json) -> Json:
    return {"top_k_experts" if "top_k_experts" in config else "num_experts_per_tok": value}


def _eps(value: Any, config: Json) -> Json:
    names = ("layer_norm_eps", "norm_epsilon", "norm_eps", "rms_norm_eps")
    return {next(name for name in names if name in config): value}


def _fewer(value: Any, config: Json) -> Json:
    count = config["num_hidden_layers"] - value
    types = config.get("layer_types")
    return {"num_hidden_layers": count} | ({"layer_types": types[:count]} if types else {})


def _turned(value: Any, config: Json) -> Json:
    """None is all of a head."""
    return (
        {} if value is None else _rule("partial_rotary_factor")(value / config["head_dim"], config)
    )


def _rotates(value: Any, config: Json) -> Json:
    """Granite 4 says by it whether there is a rotation."""
    name = "position_embedding_type"
    return {name: "rope" if value else None} if name in config else {}


def _interval(value: Any, config: Json) -> Json:
    count = config["num_hidden_layers"]
    types = ["linear_attention" if (i + 1) % value else "full_attention" for i in range(count)]
    return {"layer_types": types}


def _pattern(value: Any, config: Json) -> Json:
    every = range(config["num_hidden_layers"])
    slides = value if isinstance(value, list) else [(i + 1) % value != 0 for i in every]
    return {"layer_types": [SLIDES[each] for each in slides]}


EFFECTS: dict[str, Effect] = {
    ".attention.layer_norm_rms_epsilon": _eps,
    ".attention.layer_norm_epsilon": _eps,
    ".attention.scale": _field("attention_multiplier"),
    ".attention.causal": _field("is_causal"),
    ".attention.sliding_window": _field("sliding_window"),
    ".attention.sliding_window_pattern": _pattern,
    ".attention.temperature_scale": _rule("llama_4_scaling_beta"),
    ".attn_logit_softcapping": _field("attn_logit_softcapping"),
    ".final_logit_softcapping": _field("final_logit_softcapping"),
    ".context_length": _field("max_position_embeddings"),
    ".embedding_scale": _field("embedding_multiplier"),
    ".residual_scale": _field("residual_multiplier"),
    ".logit_scale": _logits,
    ".expert_used_count": _used,
    ".expert_weights_scale": _field("routed_scaling_factor"),
    ".expert_weights_norm": _field("norm_topk_prob"),
    ".full_attention_interval": _interval,
    ".nextn_predict_layers": _fewer,
    ".rope.freq_base": _theta,
    ".rope.freq_base_swa": _rule("rope_theta", "sliding_attention"),
    ".rope.dimension_count": _turned,
    ".rope.scaling.finetuned": _rotates,
    ".rope.scaling.type": _typed_rule,
    ".rope.scaling.factor": _scaled,
    ".rope.scale_linear": _scaled,
    ".rope.scaling.attn_factor": _multiplied,
    ".rope.scaling.yarn_attn_factor": _multiplied,
    ".rope.scaling.original_context_length": _rule("original_max_position_embeddings"),
    ".rope.scaling.yarn_beta_fast": _rule("beta_fast"),
    ".rope.scaling.yarn_beta_slow": _rule("beta_slow"),
    ".rope.scaling.yarn_log_multiplier": lambda value, config: {
        "rope_parameters": {**config["rope_parameters"], "mscale": 1.0, "mscale_all_dim": value}
    },
}
"""By key, what its value is to a config."""
DEFAULTS: dict[str, Any] = {
    **{".rope.freq_base": 10_000.0, ".rope.freq_base_swa": 10_000.0, ".logit_scale": 1.0},
    **{".attention.scale": 1.0, ".residual_scale": 1.0, ".embedding_scale": 1.0},
    **{".expert_weights_scale": 1.0, ".full_attention_interval": 4, ".rope.scaling.type": "linear"},
    ".attention.sliding_window_pattern": 4,
    **{".attention.sliding_window": None, ".rope.dimension_count": 8},
    **{".rope.scaling.factor": 1.0, ".rope.scaling.original_context_length": 512},
    **{".rope.scaling.yarn_log_multiplier": 0.0, ".rope.scaling.finetuned": True},
    **{".rope.scaling.yarn_beta_fast": 32.0, ".rope.scaling.yarn_beta_slow": 1.0},
}
"""Of keys that are left out."""
OWN_DEFAULTS: dict[str, Json] = {
    "gemma2": {
        **{".attn_logit_softcapping": 50.0, ".final_logit_softcapping": 30.0},
        ".attention.sliding_window": 4096,
    },
    "gemma3_text": {".rope.freq_base": 1_000_000.0},
    "gemma4_text": {".final_logit_softcapping": None, ".rope.dimension_count": None},
    "cohere": {".logit_scale": 0.0625},
    "cohere2": {".logit_scale": 0.0625},
}
"""The same where a family has its own."""
SIZES = {
    *(".attention.head_count", ".attention.head_count_kv", ".attention.key_length"),
    *(".block_count", ".nextn_predict_layers", ".embedding_length", ".ssm.group_count"),
    *(".rope.dimension_count", ".attention.sliding_window"),
    *(".rope.scaling.original_context_length", ".rope.freq_base", ".rope.freq_base_swa"),
    *(".rope.scaling.yarn_beta_fast", ".rope.scaling.yarn_beta_slow"),
    *(".expert_count", ".attention.sliding_window_pattern", ".attention.shared_kv_layers"),
    *(".ssm.time_step_rank", ".ssm.inner_size", ".attention.key_length_swa"),
}
"""Keys with which others do not go once they are changed, and that are named by those."""
USUAL = {".attention.causal": True}
"""Truth values by which a file says what is so without them."""
WITHOUT_EFFECT = {
    *(".vocab_size", ".tensor_data_layout", ".rope.dimension_sections"),
    *(".n_deepstack_layers", ".pooling_type", ".attention.key_length", ".attention.value_length"),
    *(
        ".attention.head_count_kv",
        *(".rope.scaling.original_context_length", ".rope.freq_base", ".rope.freq_base_swa"),
        ".use_parallel_residual",
    ),
    *(".attention.value_length_swa", ".attention.key_length_swa", ".rope.dimension_count_swa"),
    *(".attention.temperature_length", ".attention.shared_kv_layers", ".rope.scaling.factor"),
    *(".rope.scale_linear", ".nextn_predict_layers", ".expert_gating_func"),
    *(".feed_forward_length", ".expert_feed_forward_length"),
}
"""Keys that may be there, or not, with no effect on the text: sizes that tensors have too,
positions of images, and what a rule that is not there would read."""
