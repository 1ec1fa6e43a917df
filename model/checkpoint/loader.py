"""A model's weights in memory: safetensors, mapped; projections fused as `Weights` wants them."""

from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor

from draftwerk.model.checkpoint.config import ModelConfig
from draftwerk.model.checkpoint.hf_config import read_config
from draftwerk.model.checkpoint.hub import locate
from draftwerk.model.checkpoint.json_file import read_json
from draftwerk.model.checkpoint.unsupported import Refused
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
) -> Checkpoint:
    """Find a model and read its weights onto a device, as `dtype` or, if None, as stored.

    Raises Refused, naming the cause, for whatever is not a Llama-family model in safetensors.
    """
    name, directory = locate(source, progress)
    config = read_config(directory)
    progress(f"reading {name}")
    tensors = Tensors(_tensor_files(directory), dtype, device)
    weights = _weights(tensors, config)
    tensors.check_empty()
    return Checkpoint(name, directory, config, weights)


class Tensors:
    """A checkpoint's tensors by name, each to be taken once, so that none is overlooked."""

    def __init__(
        self, files: dict[str, Path], dtype: torch.dtype | None, device: torch.device
    ) -> None:
        self.files = files
        self.dtype = dtype
        self.device = device
        self.open = {path: safe_open(path, framework="pt") for path in set(files.values())}

    def take(self, name: str, *shape: int) -> Tensor:
        """Return a tensor of that shape, or refuse."""
        found = self.find(name, *shape)
        if found is None:
            raise Refused(f"the weights lack {name}")
        return found

    def find(self, name: str, *shape: int) -> Tensor | None:
        """Return a tensor of that shape, or None where there is none of that name."""
        path = self.files.pop(name, None)
        if path is None:
            return None
        tensor = self.open[path].get_tensor(name)
        if tensor.shape != shape:
            raise Refused(f"{name} has shape {tuple(tensor.shape)}, the config says {shape}")
        if not tensor.is_floating_point():
            raise Refused(f"{name} is {tensor.dtype}: quantised weights are not supported")
        return tensor.to(self.device, self.dtype or STORED.get(tensor.dtype, torch.float32))

    def fused(self, names: list[str], rows: list[int], columns: int) -> Tensor:
        """Return matrices stacked by rows."""
        return torch.cat(
            [self.take(name, count, columns) for name, count in zip(names, rows, strict=True)]
        )

    def fused_bias(self, names: list[str], rows: list[int]) -> Tensor | None:
        """Return biases joined, or None; all of them or none."""
        if not any(name in self.files for name in names):
            return None
        return torch.cat([self.take(name, count) for name, count in zip(names, rows, strict=True)])

    def check_empty(self) -> None:
        """Refuse a checkpoint with tensors that the forward would ignore."""
        left = [name for name in self.files if not name.endswith("rotary_emb.inv_freq")]
        if left:
            raise Refused(f"the weights hold {len(left)} unknown tensors: {', '.join(left[:3])}")


def _tensor_files(directory: Path) -> dict[str, Path]:
    """Return the file of every tensor, by the index where there is one."""
    index = read_json(directory / "model.safetensors.index.json")
    if index is not None:
        return {name: directory / file for name, file in index["weight_map"].items()}
    path = directory / "model.safetensors"
    if not path.is_file():
        raise Refused(f"{directory}: no model.safetensors (safetensors and GGUF only)")
    with safe_open(path, framework="pt") as file:
        return dict.fromkeys(file.keys(), path)


def _weights(tensors: Tensors, config: ModelConfig) -> Weights:
    vocabulary = (config.vocab_size, config.hidden_size)
    embedding = tensors.take("model.embed_tokens.weight", *vocabulary)
    if config.tied_embeddings:
        tensors.files.pop("lm_head.weight", None)
        lm_head = embedding
    else:
        lm_head = tensors.take("lm_head.weight", *vocabulary)
    return Weights(
        embedding=embedding,
        layers=[_layer(tensors, config, index) for index in range(config.layer_count)],
        norm=tensors.take("model.norm.weight", config.hidden_size),
        lm_head=lm_head,
    )


def _layer(tensors: Tensors, config: ModelConfig, index: int) -> LayerWeights:
    layer = f"model.layers.{index}."
    attention, ffn = layer + "self_attn.", layer + "mlp."
    hidden, head_size = config.hidden_size, config.head_size
    query, key = config.num_heads * head_size, config.num_kv_heads * head_size
    qkv = [attention + name for name in ("q_proj.", "k_proj.", "v_proj.")]
    gate_up = [ffn + name for name in ("gate_proj.", "up_proj.")]
    qkv_rows, ffn_rows = [query, key, key], [config.ffn_size] * 2
    norms = config.query_key_norm
    return LayerWeights(
        attention_norm=tensors.take(layer + "input_layernorm.weight", hidden),
        qkv=tensors.fused([name + "weight" for name in qkv], qkv_rows, hidden),
        qkv_bias=tensors.fused_bias([name + "bias" for name in qkv], qkv_rows),
        query_norm=tensors.take(attention + "q_norm.weight", head_size) if norms else None,
        key_norm=tensors.take(attention + "k_norm.weight", head_size) if norms else None,
        output=tensors.take(attention + "o_proj.weight", hidden, query),
        output_bias=tensors.find(attention + "o_proj.bias", hidden),
        ffn_norm=tensors.take(layer + "post_attention_layernorm.weight", hidden),
        gate_up=tensors.fused([name + "weight" for name in gate_up], ffn_rows, hidden),
        gate_up_bias=tensors.fused_bias([name + "bias" for name in gate_up], ffn_rows),
        down=tensors.take(ffn + "down_proj.weight", hidden, config.ffn_size),
        down_bias=tensors.find(ffn + "down_proj.bias", hidden),
    )
