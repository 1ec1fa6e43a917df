"""The tensors of a model's text part, by the names of a model of text alone."""

import re
from collections.abc import Mapping

from draftwerk.model.checkpoint.files.shards import StoredTensor

BASE = "model."
EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"
TEXT = {
    "language_model.": "",
    "model.language_model.": "model.",
    "model.text_model.": "model.",
}
"""Prefixes of the tensors of a text part, and what stands there in a model of text alone."""
NOT_TEXT = (
    "vision_tower.",
    "model.vision_tower.",
    "multi_modal_projector.",
    "model.multi_modal_projector.",
    "visual.",
    "model.visual.",
    "model.vision_model.",
    "model.connector.",
    *(f"model.{each}." for each in ("audio_tower", "embed_vision", "embed_audio")),
    "mtp.",
)
BARE = re.compile(
    r"(\.(?:experts\.(?:gate_up|down)_proj|sinks|layer_scalar|router\.(?:per_expert_)?scale))"
    r"(?:_(bias|blocks|scales))?$"
)
"""Names of parameters of gpt-oss that end in no word of their own."""


def text_tensors(stored: Mapping[str, StoredTensor]) -> dict[str, StoredTensor]:
    """Return the tensors of a model's text part, by the names of a model of text alone."""
    found: dict[str, StoredTensor] = {}
    for name, tensor in stored.items():
        if name.startswith(NOT_TEXT):
            continue
        own = text_name(name)
        if bare := BARE.search(name):
            own = f"{name[: bare.start()]}{bare[1]}.{bare[2] or 'weight'}"
        found[own] = tensor if own == name else tensor._replace(name=tensor.name or name)
    return _with_base(found)


def text_name(name: str) -> str:
    """Return what a model of text alone calls a tensor or a module."""
    prefix = next((each for each in TEXT if name.startswith(each)), "")
    return TEXT.get(prefix, "") + name.removeprefix(prefix)


def _with_base(stored: dict[str, StoredTensor]) -> dict[str, StoredTensor]:
    """Return tensors of a model that was saved without its head as if it had one."""
    if EMBEDDING.removeprefix(BASE) not in stored:
        return stored
    return {
        name if name == HEAD else BASE + name: tensor._replace(name=tensor.name or name)
        for name, tensor in stored.items()
    }
