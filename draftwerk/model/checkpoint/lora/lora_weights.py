"""An adapter's matrices in memory, in the model's own order of rows."""

from dataclasses import dataclass

import torch
from safetensors import safe_open
from torch import Tensor

from draftwerk.model.checkpoint.architectures import BY_CLASS
from draftwerk.model.checkpoint.config import ModelConfig
from draftwerk.model.checkpoint.files.shards import StoredTensor
from draftwerk.model.checkpoint.gguf_tensors import halves_of_neighbours
from draftwerk.model.checkpoint.lora.lora_card import LoraCard, LoraPair
from draftwerk.model.checkpoint.unsupported import Refused


@dataclass(frozen=True, slots=True)
class LoraMatrices:
    """The matrices added to some columns of a layer's matrix: scale * b @ a."""

    layer: int
    part: str
    first: int
    """The columns are first .. first + len(b)."""
    a: Tensor
    """float32 [rank, inputs]"""
    b: Tensor
    """float32 [columns, rank]"""
    scale: float


Adapter = tuple[LoraMatrices, ...]
"""All modules of one, in the order of their layers and columns."""


def load_lora(card: LoraCard, config: ModelConfig) -> Adapter:
    """Read an adapter's tensors. Raises Refused."""
    found = (_matrices(pair, config) for pair in card.pairs)
    return tuple(sorted(found, key=lambda one: (one.layer, one.part, one.first)))


def _matrices(pair: LoraPair, config: ModelConfig) -> LoraMatrices:
    module, b = pair.module, read_matrix(pair.b)
    if module.part == "qkv" and BY_CLASS[config.architecture].pairs_are_neighbours:
        b = b[_order(config)[module.first : module.first + module.columns] - module.first]
    return LoraMatrices(pair.layer, module.part, module.first, read_matrix(pair.a), b, pair.scale)


def _order(config: ModelConfig) -> Tensor:
    """Return the order of a layer's query, key and value rows by which rotation pairs halves."""
    heads, size = config.num_heads + config.num_kv_heads, config.head_size
    order = halves_of_neighbours(heads, size, 2 * len(config.rope_inverse_frequencies))
    values = torch.arange(config.num_kv_heads * size) + len(order)
    return torch.cat([order, values])


def read_matrix(tensor: StoredTensor) -> Tensor:
    """Return a matrix of an adapter's file in float32. Raises Refused."""
    with safe_open(tensor.path, framework="pt") as file:
        found = file.get_tensor(tensor.name).float().contiguous()
    if not found.isfinite().all():
        raise Refused(f"{tensor.path}: {tensor.name} has values that are not finite")
    return found
