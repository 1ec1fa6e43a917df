"""The `config.json` of a Gemma 4 assistant's folder, read without torch."""

from pathlib import Path
from typing import NamedTuple, cast

from draftwerk.model.checkpoint.architectures import completed
from draftwerk.model.checkpoint.families.architecture import Json, count_of
from draftwerk.model.checkpoint.families.gemma4 import READS_TARGET
from draftwerk.model.checkpoint.files.json_file import read_json
from draftwerk.model.checkpoint.rope_fields import check_rope
from draftwerk.model.checkpoint.supported import check_supported
from draftwerk.model.checkpoint.unsupported import Refused

KINDS = ("gemma4_assistant", "gemma4_unified_assistant")
"""By `model_type`."""


class AssistantConfig(NamedTuple):
    """What the file says of the assistant, and of its layers as a Gemma 4 of these."""

    hidden_size: int
    """The target's."""
    layers: Json
    centroids: int
    """Into whose clusters tokens are divided; 0 where each token is looked at."""
    clusters_used: int


def is_assistant(directory: Path) -> bool:
    """Whether a folder holds an assistant."""
    return (read_json(directory / "config.json") or {}).get("model_type") in KINDS


def read_assistant_config(directory: Path) -> AssistantConfig:
    """Return an assistant's configuration. Raises Refused."""
    hf = read_json(directory / "config.json") or {}
    text = hf.get("text_config")
    if not isinstance(text, dict):
        raise Refused("config.json lacks text_config")
    if text.get("hidden_size_per_layer_input"):
        raise Refused("config.json: hidden_size_per_layer_input is not supported")
    own = cast(Json, {key: value for key, value in text.items() if key != "dtype"})
    alone = {"architectures": ["Gemma4ForCausalLM"], "model_type": "gemma4_text"}
    own = completed({**own, **alone, "tie_word_embeddings": True, READS_TARGET: True})
    all_shared = {"num_kv_shared_layers": own["num_hidden_layers"]}
    own = {**own, **all_shared, "final_logit_softcapping": None}
    check_supported(own)
    check_rope(own)
    clusters = (0, 0)
    if hf.get("use_ordered_embeddings"):
        clusters = count_of(hf, "num_centroids"), count_of(hf, "centroid_intermediate_top_k")
        if own["vocab_size"] % clusters[0] or clusters[1] > clusters[0]:
            raise Refused(f"config.json: num_centroids {clusters[0]} do not divide the vocabulary")
    return AssistantConfig(count_of(hf, "backbone_hidden_size"), own, *clusters)
