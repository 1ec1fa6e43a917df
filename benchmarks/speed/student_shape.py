"""A random checkpoint of Llama's layers, and students of it that guess it well or not at all."""

import json
from math import sqrt
from pathlib import Path
from shutil import copy
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from draftwerk.model.checkpoint.architectures import completed
from draftwerk.model.checkpoint.hub import locate
from draftwerk.model.checkpoint.info import read_info
from draftwerk.model.checkpoint.inventory import inventory

CONFIG: dict[str, Any] = {
    **{"architectures": ["LlamaForCausalLM"], "model_type": "llama"},
    **{"hidden_size": 2048, "intermediate_size": 8192},
    **{"num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64},
    **{"max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "tie_word_embeddings": False},
    **{"bos_token_id": 1, "eos_token_id": 2},
}
SURENESS = 9
"""On the head's weights: the entropy of a token is about one."""
CONTROL_TOKENS = 64
"""The first ones, which are next to never generated."""
OUTPUTS = ("o_proj", "down_proj")
FIRST = "model.layers.0."


def save_family(directory: Path, layers: int, loudness: float) -> tuple[Path, Path, Path]:
    """Write a target in bf16, a student that is its first layer, and a stranger of that shape.

    The other layers' outputs are as loud as that, relative to the first one's.
    """
    hf = {**CONFIG, "vocab_size": read_info(locate(None)).vocab_size, "num_hidden_layers": layers}
    tensors = {
        name: _random(name, shape, loudness)
        for name, shape in inventory(dict(completed(hf))).required.items()
    }
    small = {**hf, "num_hidden_layers": 1}
    first = {
        name: each
        for name, each in tensors.items()
        if name.startswith(FIRST) or "layers." not in name
    }
    other = {
        name: _random(name, tuple(each.shape), loudness) if name.startswith(FIRST) else each
        for name, each in first.items()
    }
    found: list[Path] = []
    for name, config, weights in (
        ("target", hf, tensors),
        ("student", small, first),
        ("stranger", small, other),
    ):
        found.append(directory / name)
        _save(found[-1], config, weights)
    target, student, stranger = found
    return target, student, stranger


def _random(name: str, shape: tuple[int, ...], loudness: float) -> Tensor:
    if len(shape) == 1:
        return torch.ones(shape).bfloat16()
    if "embed" in name:
        return torch.randn(shape).bfloat16()
    value = torch.randn(shape) / sqrt(shape[1])
    if "lm_head" in name:
        value[:CONTROL_TOKENS] = 0.0
        value *= SURENESS
    elif not name.startswith(FIRST) and any(each in name for each in OUTPUTS):
        value *= loudness
    return value.bfloat16()


def _save(folder: Path, hf: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    folder.mkdir()
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(completed(hf)), encoding="utf-8")
    source = locate(None).directory
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        copy(source / name, folder)
