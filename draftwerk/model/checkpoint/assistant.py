"""The assistant of a Gemma 4: a folder with a few layers, which read what the target has kept.

    hidden  = pre_projection [scaled embedding of token i + 1, state of token i]
    layers  Gemma 4's, without keys: each attends by those of the target's last layer of its kind
    guess   = the head of norm(hidden); the state after it is post_projection norm(hidden)

Every guess attends to the same keys, from the same position. Transformers has it as
Gemma4Assistant; its windows reach one position further back. With ordered embeddings only the
tokens of those clusters are looked at whose centroids have the highest scores.
"""

from pathlib import Path
from typing import NamedTuple

import torch
from msgspec.structs import replace
from torch import Tensor

from draftwerk.model.checkpoint.architectures import BY_CLASS
from draftwerk.model.checkpoint.assistant_config import AssistantConfig, read_assistant_config
from draftwerk.model.checkpoint.checkpoint_tensors import Tensors
from draftwerk.model.checkpoint.config import LayerKind, ModelConfig
from draftwerk.model.checkpoint.files.shards import StoredTensor, stored_tensors
from draftwerk.model.checkpoint.gguf_tensors import Dequantise
from draftwerk.model.checkpoint.hf_config import model_config
from draftwerk.model.checkpoint.inventory import check_tensors
from draftwerk.model.checkpoint.layer_weights import layer_weights
from draftwerk.model.checkpoint.loader import opened
from draftwerk.model.checkpoint.shard import whole
from draftwerk.model.checkpoint.text_part import EMBEDDING, HEAD, text_tensors
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.checkpoint.weights import LayerWeights

BEFORE, AFTER = "pre_projection.weight", "post_projection.weight"
CENTROIDS, ORDER = "masked_embedding.centroids.weight", "masked_embedding.token_ordering"


class Clusters(NamedTuple):
    """Tokens that are looked at together."""

    centroids: Tensor
    """[clusters, hidden]"""
    tokens: Tensor
    """[clusters, tokens of each]"""
    used: int
    """By each guess."""


class AssistantWeights(NamedTuple):
    """An assistant's weights, of hidden size h, for a target of size H."""

    config: ModelConfig
    """The configuration of its layers; their `kv_from` are the target's."""
    layers: list[LayerWeights]
    norm: Tensor
    head: Tensor
    """[vocab, h]"""
    before: Tensor
    """[h, 2 H]"""
    after: Tensor
    """[H, h]"""
    clusters: Clusters | None


def read_assistant(
    directory: Path,
    target: ModelConfig,
    dtype: torch.dtype | None = None,
    dequantise: Dequantise | None = None,
) -> AssistantWeights:
    """Return the assistant in a folder. Raises Refused, naming what does not fit the target."""
    try:
        return _read(directory, target, dtype, dequantise)
    except Refused as error:
        raise Refused(f"draft head {directory}: {error}") from None


def _read(
    directory: Path, target: ModelConfig, dtype: torch.dtype | None, dequantise: Dequantise | None
) -> AssistantWeights:
    hf = read_assistant_config(directory)
    config = _bound(model_config(hf.layers, {}), hf, target)
    stored = text_tensors(stored_tensors(directory))
    beside = _shapes(hf)
    _check_shapes(stored, beside)
    check_tensors(hf.layers, {name: each for name, each in stored.items() if name not in beside})
    tensors = opened(stored, hf.layers, dtype, dequantise=dequantise)
    return AssistantWeights(
        config,
        [layer_weights(tensors, config, whole(config), each) for each in range(config.layer_count)],
        tensors.take("model.norm.weight"),
        tensors.take(HEAD if HEAD in stored else EMBEDDING),
        tensors.take(BEFORE),
        tensors.take(AFTER),
        _clusters(tensors, hf) if hf.centroids else None,
    )


def _bound(own: ModelConfig, hf: AssistantConfig, target: ModelConfig) -> ModelConfig:
    """Return a config whose layers read the target's."""
    if not BY_CLASS[target.architecture].has_assistant:
        raise Refused(f"an assistant does not draft for {target.architecture}")
    for name, found, wanted in (
        ("backbone_hidden_size", hf.hidden_size, target.hidden_size),
        ("vocab_size", own.vocab_size, target.vocab_size),
    ):
        if found != wanted:
            raise Refused(f"config.json: {name} is {found}, and the model's is {wanted}")
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


def _shapes(hf: AssistantConfig) -> dict[str, tuple[int, ...]]:
    """Return what the shapes of tensors beside the layers must be."""
    hidden, size = hf.hidden_size, hf.layers["hidden_size"]
    found: dict[str, tuple[int, ...]] = {BEFORE: (size, 2 * hidden), AFTER: (hidden, size)}
    if hf.centroids:
        found |= {CENTROIDS: (hf.centroids, size), ORDER: (hf.layers["vocab_size"],)}
    return found


def _check_shapes(stored: dict[str, StoredTensor], shapes: dict[str, tuple[int, ...]]) -> None:
    for name, shape in shapes.items():
        if name not in stored:
            raise Refused(f"it lacks {name}")
        if stored[name].shape != shape:
            raise Refused(f"{name} is {list(stored[name].shape)}, not {list(shape)}")


def _clusters(tensors: Tensors, hf: AssistantConfig) -> Clusters:
    held = tensors.stored[ORDER]
    order = tensors.open[held.path].get_tensor(held.name or ORDER).long()
    if not torch.equal(order.sort().values, torch.arange(len(order))):
        raise Refused(f"{ORDER} does not name each token once")
    return Clusters(tensors.take(CENTROIDS), order.view(hf.centroids, -1), hf.clusters_used)
