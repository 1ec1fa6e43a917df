"""The `config.json` of a Gemma 4 assistant's folder, read without torch."""

from pathlib import Path
from typing import NamedTuple, cast

from msgspec.structs import replace

from draftwerk.model.checkpoint.architectures import BY_CLASS
from draftwerk.model.checkpoint.config import LayerKind, ModelConfig
from draftwerk.model.checkpoint.drafter_plan import (
    DrafterPlan,
    check_same,
    check_shapes,
    layers_as,
)
from draftwerk.model.checkpoint.families.architecture import Json, count_of
from draftwerk.model.checkpoint.families.gemma4 import READS_TARGET
from draftwerk.model.checkpoint.files.json_file import read_json
from draftwerk.model.checkpoint.files.shards import StoredTensor, stored_tensors
from draftwerk.model.checkpoint.hf_config import model_config
from draftwerk.model.checkpoint.inventory import TensorShape, check_tensors
from draftwerk.model.checkpoint.text_part import text_tensors
from draftwerk.model.checkpoint.unsupported import Refused

KINDS = ("gemma4_assistant", "gemma4_unified_assistant")
"""By `model_type`."""
BEFORE, AFTER = "pre_projection.weight", "post_projection.weight"
CENTROIDS, ORDER = "masked_embedding.centroids.weight", "masked_embedding.token_ordering"


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
    own = layers_as(
        {**own, READS_TARGET: True, "final_logit_softcapping": None},
        "Gemma4ForCausalLM",
        "gemma4_text",
        tie_word_embeddings=True,
        num_kv_shared_layers=own.get("num_hidden_layers"),
    )
    clusters = (0, 0)
    if hf.get("use_ordered_embeddings"):
        clusters = count_of(hf, "num_centroids"), count_of(hf, "centroid_intermediate_top_k")
        if own["vocab_size"] % clusters[0] or clusters[1] > clusters[0]:
            raise Refused(f"config.json: num_centroids {clusters[0]} do not divide the vocabulary")
    return AssistantConfig(count_of(hf, "backbone_hidden_size"), own, *clusters)


def plan_assistant(directory: Path, _: Path, target: ModelConfig) -> DrafterPlan:
    """Return what the assistant in a folder takes. Raises Refused, naming what does not fit."""
    own = read_assistant_config(directory)
    bound = assistant_layers(own, target)
    name = f"a Gemma 4 assistant of {bound.layer_count} layers, which read the model's keys"
    return DrafterPlan(f"{name} and values", assistant_tensors(directory, own))


def assistant_layers(hf: AssistantConfig, target: ModelConfig) -> ModelConfig:
    """Return a config whose layers read the target's. Raises Refused."""
    if not BY_CLASS[target.architecture].has_assistant:
        raise Refused(f"an assistant does not draft for {target.architecture}")
    own = model_config(hf.layers, {})
    check_same("backbone_hidden_size", hf.hidden_size, target.hidden_size)
    check_same("vocab_size", own.vocab_size, target.vocab_size)
    read = [replace(each, kv_from=_source(each, target)) for each in own.layers]
    for index, kind in enumerate(read):
        if own.key_heads(index) != target.key_heads(kind.kv_from):
            heads, size = target.key_heads(kind.kv_from)
            raise Refused(f"config.json: layer {index} does not read {heads} heads of {size}")
    return replace(own, layers=tuple(read))


def _source(kind: LayerKind, target: ModelConfig) -> int:
    """Return the target's last layer of a kind that has keys of its own."""
    for index in reversed(range(target.layer_count)):
        found = target.kind(index)
        if found.kv_from < 0 and found.is_windowed == kind.is_windowed:
            return index
    kinds = "with a window" if kind.is_windowed else "that sees all positions"
    raise Refused(f"the model has no layer {kinds}")


def assistant_tensors(directory: Path, hf: AssistantConfig) -> dict[str, StoredTensor]:
    """Return an assistant's tensors. Raises Refused where one lacks, is unknown or does not fit."""
    stored = text_tensors(stored_tensors(directory))
    hidden, size = hf.hidden_size, hf.layers["hidden_size"]
    beside: dict[str, TensorShape] = {BEFORE: (size, 2 * hidden), AFTER: (hidden, size)}
    if hf.centroids:
        beside |= {CENTROIDS: (hf.centroids, size), ORDER: (hf.layers["vocab_size"],)}
    check_shapes(stored, beside, (ORDER,))
    check_tensors(hf.layers, {name: each for name, each in stored.items() if name not in beside})
    return stored
