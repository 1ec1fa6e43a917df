"""The `config.json` of an EAGLE-3 head's folder, read without torch."""

from pathlib import Path
from typing import NamedTuple, cast

from draftwerk.model.checkpoint.architectures import completed
from draftwerk.model.checkpoint.families.architecture import Json, counted
from draftwerk.model.checkpoint.files.json_file import read_json
from draftwerk.model.checkpoint.rope_fields import check_rope
from draftwerk.model.checkpoint.supported import check_supported
from draftwerk.model.checkpoint.unsupported import Refused

VARIANTS = ("norm_before_fc", "fc_norm", "norm_output")
"""Variants that a config may ask for and that are not computed."""


class EagleConfig(NamedTuple):
    """What the file says of the head, and of its layer as a Llama of this one layer."""

    head: Json
    layer: Json
    """Its vocabulary is that which the head guesses."""


def read_eagle_config(directory: Path) -> EagleConfig:
    """Return a head's configuration. Raises Refused."""
    if (head := read_json(directory / "config.json")) is None:
        raise Refused("it has no config.json")
    if asked := [name for name in VARIANTS if head.get(name)]:
        raise Refused(f"config.json: {asked[0]} is not supported")
    nested = head.get("transformer_layer_config")
    own = cast(Json, nested) if isinstance(nested, dict) else head
    own = {key: value for key, value in own.items() if key != "dtype"}
    alone = {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}
    own = completed({**own, **alone, "tie_word_embeddings": False})
    check_supported(own)
    check_rope(own)
    if own["num_hidden_layers"] != 1:
        raise Refused(f"config.json: {own['num_hidden_layers']} layers, where one is supported")
    guessed = counted("draft_vocab_size", head.get("draft_vocab_size") or own["vocab_size"])
    return EagleConfig(head, {**own, "vocab_size": guessed})
