"""A model's weights in memory: safetensors, mapped; projections fused as in `Weights`."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor

from draftwerk.model.checkpoint.config import ModelConfig
from draftwerk.model.checkpoint.files.shards import StoredTensor, stored_tensors
from draftwerk.model.checkpoint.hf_config import read_config
from draftwerk.model.checkpoint.hub import locate
from draftwerk.model.checkpoint.info import read_supported
from draftwerk.model.checkpoint.inventory import EMBEDDING, HEAD, check_tensors
from draftwerk.model.checkpoint.weights import LayerWeights, Weights
from draftwerk.speculative.protocol.frames import OnProgress

CPU = torch.device("cpu")
STORED = {torch.bfloat16: torch.bfloat16}
"""What is kept as it is stored; everything else is read as float32."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Everything read from disk; `directory` also holds the tokenizer's files."""

    name: str
    directory: Path
    config: ModelConfig
    weights: Weights


def load(
    source: str | None,
    dtype: torch.dtype | None,
    device: torch.device = CPU,
    progress: OnProgress = lambda _: None,
    matrices: bool = True,
) -> Checkpoint:
    """Find a model and read its weights onto a device, as `dtype` or, if None, as stored.

    Without `matrices` those of the layers have shapes alone (`meta`).

    Raises Refused, naming the cause, for whatever is not a Llama-family model in safetensors.
    """
    name, directory = locate(source, progress)
    config = read_config(directory)
    stored = stored_tensors(directory)
    check_tensors(read_supported(directory), stored)
    progress(f"reading {name}")
    tensors = Tensors(stored, dtype, device, matrices)
    return Checkpoint(name, directory, config, _weights(tensors, config))


class Tensors:
    """A checkpoint's tensors by name; it has passed `check_tensors`."""

    def __init__(
        self,
        stored: Mapping[str, StoredTensor],
        dtype: torch.dtype | None,
        device: torch.device,
        matrices: bool = True,
    ) -> None:
        """Without `matrices` those of layers are given without data."""
        self.matrices = matrices
        self.stored = stored
        self.dtype = dtype
        self.device = device
        paths = {tensor.path for tensor in stored.values()}
        self.open = {path: safe_open(path, framework="pt") for path in paths}

    def take(self, name: str) -> Tensor:
        """Return a tensor that the checkpoint is known to hold."""
        tensor = self.open[self.stored[name].path].get_tensor(name)
        return tensor.to(self.device, self.dtype or STORED.get(tensor.dtype, torch.float32))

    def find(self, name: str) -> Tensor | None:
        """Return a tensor, or None where there is none of that name."""
        return self.take(name) if name in self.stored else None

    def fused(self, names: list[str]) -> Tensor:
        """Return matrices stacked by rows."""
        if self.matrices:
            return self.matrix(names)
        shapes = [self.stored[name].shape for name in names]
        rows = sum(shape[0] for shape in shapes)
        return torch.empty(rows, *shapes[0][1:], device="meta")

    def matrix(self, names: list[str]) -> Tensor:
        """Return matrices stacked by rows, with their numbers."""
        parts = [self.take(name) for name in names]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def fused_bias(self, names: list[str]) -> Tensor | None:
        """Return biases joined, or None; a checkpoint has all of them or none."""
        if names[0] not in self.stored:
            return None
        return torch.cat([self.take(name) for name in names])


def _weights(tensors: Tensors, config: ModelConfig) -> Weights:
    embedding = tensors.take(EMBEDDING)
    lm_head = embedding if config.tied_embeddings else tensors.take(HEAD)
    if config.tied_embeddings and (stored := tensors.find(HEAD)) is not None:
        # Transformers ties what is equal: a head of its own means that the config is wrong.
        lm_head = embedding if torch.equal(stored, embedding) else stored
    return Weights(
        embedding=embedding,
        layers=[_layer(tensors, config, index) for index in range(config.layer_count)],
        norm=tensors.take("model.norm.weight"),
        lm_head=lm_head,
    )


def _layer(tensors: Tensors, config: ModelConfig, index: int) -> LayerWeights:
    layer = f"model.layers.{index}."
    attention, ffn = layer + "self_attn.", layer + "mlp."
    qkv = [attention + name for name in ("q_proj.", "k_proj.", "v_proj.")]
    gate_up = [ffn + name for name in ("gate_proj.", "up_proj.")]
    norms = config.query_key_norm
    return LayerWeights(
        attention_norm=tensors.take(layer + "input_layernorm.weight"),
        qkv=tensors.fused([name + "weight" for name in qkv]),
        qkv_bias=tensors.fused_bias([name + "bias" for name in qkv]),
        query_norm=tensors.take(attention + "q_norm.weight") if norms else None,
        key_norm=tensors.take(attention + "k_norm.weight") if norms else None,
        output=tensors.fused([attention + "o_proj.weight"]),
        output_bias=tensors.find(attention + "o_proj.bias"),
        ffn_norm=tensors.take(layer + "post_attention_layernorm.weight"),
        gate_up=tensors.fused([name + "weight" for name in gate_up]),
        gate_up_bias=tensors.fused_bias([name + "bias" for name in gate_up]),
        down=tensors.fused([ffn + "down_proj.weight"]),
        down_bias=tensors.find(ffn + "down_proj.bias"),
    )
