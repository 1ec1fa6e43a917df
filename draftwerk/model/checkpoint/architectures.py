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


def _text_of(hf: Json, text: Any) -> Json:
    wrapper = _class_of(hf)
    if wrapper in DRAFTERS:
        raise Refused(f"{wrapper} drafts for another model, which names it by --draft-head")
    if wrapper not in WRAPPED.keys() | OF_ANY_TEXT or not isinstance(text, dict):
        raise Refused(f"{wrapper} with a text_config is not supported")
    outer = {key: hf[key] for key in OUTER if key in hf}
    tied = {TIED: text[TIED]} if TIED in text else {}
    name = WRAPPED.get(wrapper, "")
    if wrapper in OF_ANY_TEXT:
        name = BY_TYPE.get(text.get("model_type", "llama"), name)
    return {**text, **outer, **tied, "architectures": [name]}
