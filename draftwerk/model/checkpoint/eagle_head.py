"""EAGLE-3 heads (arXiv 2503.01840): a folder with a decoder layer that reads three of the target's.

    fc              [H, 3 T]     of the target's hidden states before three of its layers
    layer           Llama's, but its attention reads [norm(embedding), norm(hidden)]
    norm, lm_head   of a vocabulary of its own; its token i is the target's i + d2t[i]

Read as EAGLE, SpecForge and speculators write them, from safetensors.
"""

from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from draftwerk.model.checkpoint.checkpoint_tensors import Tensors
from draftwerk.model.checkpoint.config import ModelConfig
from draftwerk.model.checkpoint.eagle_config import (
    EMBEDDING,
    MATRICES,
    NORMS,
    OFFSETS,
    eagle_tensors,
    read_eagle_config,
)
from draftwerk.model.checkpoint.hf_config import model_config
from draftwerk.model.checkpoint.unsupported import Refused


class EagleHead(NamedTuple):
    """A head's weights."""

    config: ModelConfig
    """The configuration of a Llama of this one layer, with as many tokens as the head guesses."""
    target_layers: tuple[int, ...]
    """Before which of the target's the hidden states are read, ascending."""
    norms_residual: bool
    """Whether what the layer adds to is normed."""
    norms: dict[str, Tensor]
    """By `NORMS`."""
    matrices: dict[str, Tensor]
    """By `MATRICES`."""
    vocabulary: Tensor
    """The target's tokens, by row of the lm_head."""
    embedding: Tensor | None
    """None where it is the target's."""


def read_eagle(directory: Path, target: ModelConfig) -> EagleHead:
    """Return the head in a folder. Raises Refused, naming what does not fit the target."""
    own = read_eagle_config(directory)
    config = model_config(own.layer, {})
    tensors = Tensors(eagle_tensors(directory, own, target), None, torch.device("cpu"))
    stacked = {
        key: torch.cat([tensors.take(f"{name}.weight") for name in names])
        for key, names in MATRICES.items()
    }
    return EagleHead(
        config,
        own.target_layers(target.layer_count),
        bool(own.head.get("norm_before_residual")),
        {name: tensors.exact(f"{name}.weight") for name in NORMS},
        stacked,
        _vocabulary(tensors, config.vocab_size, target.vocab_size),
        tensors.find(EMBEDDING),
    )


def _vocabulary(tensors: Tensors, size: int, target: int) -> Tensor:
    found = torch.arange(size)
    if (offsets := tensors.stored.get(OFFSETS)) is not None:
        found += tensors.open[offsets.path].get_tensor(offsets.name).long()
    if not 0 <= int(found.min()) <= int(found.max()) < target:
        raise Refused(f"{OFFSETS} names tokens that the model does not have")
    return found
