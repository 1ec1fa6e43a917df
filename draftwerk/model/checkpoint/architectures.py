"""The architectures served, a row each in `families/`: configs, tensors, GGUF files read the rows.

A family of known parts is a row, and nothing else.
"""

from typing import Any

from draftwerk.model.checkpoint.families import (
    cohere,
    experts,
    gemma,
    gemma4,
    glm,
    granite,
    granite_hybrid,
    lfm,
    llama,
    olmo,
    qwen_next,
)
from draftwerk.model.checkpoint.families.architecture import Architecture, Json
from draftwerk.model.checkpoint.keys.config_keys import check_config_keys
from draftwerk.model.checkpoint.keys.known_keys import NO_OTHERS
from draftwerk.model.checkpoint.model_options import TRANSFORMERS
from draftwerk.model.checkpoint.unsupported import Refused

ARCHITECTURES = (
    *(*llama.ROWS, *granite.ROWS, *olmo.ROWS, *gemma.ROWS, *gemma4.ROWS, *cohere.ROWS, *glm.ROWS),
    *(*experts.ROWS, *lfm.ROWS, *qwen_next.ROWS, *granite_hybrid.ROWS),
)
BY_CLASS = {row.hf_name: row for row in ARCHITECTURES}
WRAPPED = {wrapper: row.hf_name for row in ARCHITECTURES for wrapper in row.wrappers}
BY_TYPE = {row.model_type: row.hf_name for row in reversed(ARCHITECTURES)}
OF_ANY_TEXT = {
    f"{name}ForConditionalGeneration"
    for name in ("Llava", "Mistral3", "Idefics3", "SmolVLM", "InternVL")
}
"""Classes of text beside pictures whose text part is of any class."""
QWEN_VISION = {f"Qwen{name}ForConditionalGeneration" for name in ("2VL", "2_5_VL", "3VL")}
"""Wrappers whose text part has defaults of its own."""
NEEDED = ("rms_norm_eps", "num_key_value_heads", "vocab_size", "max_position_embeddings")
"""Their fields whose defaults differ from those of the text's class."""
WITHOUT_HEAD = {row.base_name: row.hf_name for row in ARCHITECTURES}
"""Classes of what stands before a head, which files that make vectors name."""
TIED = "tie_word_embeddings"
DRAFTERS = ("Gemma4AssistantForCausalLM", "Gemma4UnifiedAssistantForCausalLM")
"""Classes that are draft heads."""
OUTER = ("eos_token_id", TIED, "dtype", "torch_dtype", "quantization_config")
"""Fields that stand beside a `text_config` and are about the text too."""


def architecture_of(hf: Json) -> Architecture:
    """Return the row of a config. Raises Refused for a class that has none."""
    name = _class_of(hf)
    if name not in BY_CLASS:
        raise Refused(f"{name} is not supported (only {', '.join(BY_CLASS)}){_elsewhere(name)}")
    return BY_CLASS[name]


def is_declared(hf: Json) -> bool:
    """Whether a config's class has a row, or its text part has."""
    return _class_of(hf) in BY_CLASS.keys() | WRAPPED.keys() | OF_ANY_TEXT


def wraps_any_text(hf: Json) -> bool:
    """Whether a config's class has a text part of any class, and a head of its own."""
    return _class_of(hf) in OF_ANY_TEXT


def _class_of(hf: Json) -> str:
    named = hf.get("architectures") or ["no architecture"]
    name = str(named[0] if isinstance(named, list) else named)
    return WITHOUT_HEAD.get(name, name)


def _elsewhere(name: str) -> str:
    """Return what a person may try with a class that has no row."""
    is_causal = name.endswith(("ForCausalLM", "LMHeadModel"))
    return f"; --backend {TRANSFORMERS} may serve it" if is_causal else ""


def check_keys(hf: Json) -> None:
    """Raise Refused for a key that is not known of a config's class, or of its text part's."""
    text = hf.get("text_config")
    if text is None:
        row = architecture_of(hf)
        return check_config_keys(row.hf_name, hf, row.keys, row.aliases)
    row = architecture_of(_text_of(hf, text))
    check_config_keys(_class_of(hf), hf, NO_OTHERS)
    check_config_keys(row.hf_name, text, row.keys, row.aliases)


def completed(hf: Json) -> Json:
    """Return a config with the class's defaults of the fields that it leaves out.

    Of a model of text and images it is the text's.
    """
    if (text := hf.get("text_config")) is not None:
        hf = _text_of(hf, text)
    row = architecture_of(hf)
    found = {**row.fields.defaults, **_renamed(row, hf)}
    if hf.get("rope_parameters") is None:  # the class's, unless another is named as of old
        old = hf.get("rope_scaling")
        found["rope_parameters"] = None if old else row.fields.defaults.get("rope_parameters")
    found |= row.rewritten(found)
    return found | {
        "architectures": [row.hf_name],
        "intermediate_size": found.get(row.ffn_size),
    }


def _renamed(row: Architecture, hf: Json) -> Json:
    """Return a config with the names that are read. Raises Refused for two that differ."""
    renamed = {new: hf[old] for old, new in row.aliases.items() if old in hf}
    for old, new in row.aliases.items():
        if old in hf and hf.get(new, hf[old]) != hf[old]:
            raise Refused(f"{new} {hf[new]!r} contradicts {old} {hf[old]!r}")
    return {**hf, **renamed}


def nested(hf: Json) -> Json:
    """Return a config whose text's fields are in a `text_config`, beside which older ones of Qwen
    have them."""
    if _class_of(hf) not in QWEN_VISION or hf.get("text_config") is not None:
        return hf
    beside = ("architectures", "model_type", "vision_config")
    own = {key: hf[key] for key in (*beside, *OUTER) if key in hf}
    return {**own, "text_config": {key: hf[key] for key in hf if key not in own}}


def _check_own(hf: Json, text: Json) -> None:
    """Raise Refused for a text part of another class, or that leaves out what its own says."""
    kind = text.get("model_type")
    if kind not in (None, f"{hf.get('model_type')}_text"):
        raise Refused(f"text_config model_type {kind!r} is not supported")
    rule = text.get("rope_parameters") or text.get("rope_scaling") or {}
    named = {"rope_theta": rule.get("rope_theta"), **text}
    for key in (*NEEDED, "rope_theta"):
        if named.get(key) is None:
            raise Refused(f"text_config lacks {key}")


def _text_of(hf: Json, text: Any) -> Json:
    wrapper = _class_of(hf)
    if wrapper in DRAFTERS:
        raise Refused(f"{wrapper} drafts for another model, which names it by --draft-head")
    if wrapper not in WRAPPED.keys() | OF_ANY_TEXT or not isinstance(text, dict):
        raise Refused(f"{wrapper} with a text_config is not supported")
    outer = {key: hf[key] for key in OUTER if key in hf}
    tied = {TIED: text[TIED]} if TIED in text else {}
    name = WRAPPED.get(wrapper, "")
    if wrapper in QWEN_VISION:
        _check_own(hf, text)
        kind, is_tied = BY_CLASS[name].model_type, text.get(TIED) or outer.get(TIED)
        tied = {TIED: bool(is_tied), "model_type": kind}
    if wrapper in OF_ANY_TEXT:
        name = BY_TYPE.get(text.get("model_type", "llama"), name)
    return {**text, **outer, **tied, "architectures": [name]}
