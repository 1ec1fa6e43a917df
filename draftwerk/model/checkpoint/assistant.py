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
from torch import Tensor

from draftwerk.model.checkpoint.assistant_config import (
    AFTER,
    BEFORE,
    CENTROIDS,
    ORDER,
    AssistantConfig,
    assistant_layers,
    assistant_tensors,
    read_assistant_config,
)
from draftwerk.model.checkpoint.checkpoint_tensors import Tensors
from draftwerk.model.checkpoint.config import ModelConfig
from draftwerk.model.checkpoint.gguf_tensors import Dequantise
from draftwerk.model.checkpoint.layer_weights import layer_weights
from draftwerk.model.checkpoint.loader import opened
from draftwerk.model.checkpoint.shard import whole
from draftwerk.model.checkpoint.text_part import EMBEDDING, HEAD
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.checkpoint.weights import LayerWeights


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
    hf = read_assistant_config(directory)
    config = assistant_layers(hf, target)
    stored = assistant_tensors(directory, hf)
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


def _clusters(tensors: Tensors, hf: AssistantConfig) -> Clusters:
    held = tensors.stored[ORDER]
    order = tensors.open[held.path].get_tensor(held.name or ORDER).long()
    if not torch.equal(order.sort().values, torch.arange(len(order))):
        raise Refused(f"{ORDER} does not name each token once")
    return Clusters(tensors.take(CENTROIDS), order.view(hf.centroids, -1), hf.clusters_used)
