"""Random LoRA adapters of small models, in memory and as PEFT writes them."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from draftwerk.model.checkpoint.config import ModelConfig
from draftwerk.model.checkpoint.lora.lora_card import adapted_modules
from draftwerk.model.checkpoint.lora.lora_weights import Adapter, LoraMatrices

ALL = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
SETS = (ALL, ("q_proj", "v_proj"), ("gate_proj", "up_proj", "down_proj"), ("o_proj",), ("k_proj",))
"""Modules that adapters commonly have, and some that they seldom have."""
RANKS = (4, 16, 8, 3, 1, 20, 2, 7)


def random_adapter(
    config: ModelConfig, seed: int, modules: Iterable[str] = ALL, rank: int = 4, scale: float = 2.0
) -> Adapter:
    """Return an adapter whose products are about as large as those of the model's matrices."""
    found: list[LoraMatrices] = []
    for layer in range(config.layer_count):
        for name, module in adapted_modules(config, layer).items():
            if name.rpartition(".")[2] in modules:
                a, b = pair(seed + 100 * len(found), module.inputs, module.columns, rank)
                found.append(LoraMatrices(layer, module.part, module.first, a, b, scale))
    return tuple(found)


def pair(seed: int, inputs: int, columns: int, rank: int) -> tuple[Tensor, Tensor]:
    """Return A and B."""
    generator = torch.Generator().manual_seed(seed)
    a = torch.randn(rank, inputs, generator=generator) * inputs**-0.5
    return a, torch.randn(columns, rank, generator=generator) * (rank**-0.5 / 4)


def eight_adapters(config: ModelConfig) -> list[Adapter]:
    """Return adapters of several ranks and modules."""
    return [
        random_adapter(config, seed, SETS[seed % len(SETS)], rank, 0.5 + seed / 4)
        for seed, rank in enumerate(RANKS)
    ]


def save_adapter(
    folder: Path,
    config: ModelConfig,
    seed: int = 0,
    modules: Iterable[str] = ALL,
    rank: int = 4,
    dtype: torch.dtype = torch.float32,
    **fields: Any,
) -> Path:
    """Write a random adapter's folder; `fields` are of its config."""
    patterns: Mapping[str, int] = fields.get("rank_pattern", {})
    tensors: dict[str, Tensor] = {}
    for layer in range(config.layer_count):
        for name, module in adapted_modules(config, layer).items():
            own = name.rpartition(".")[2]
            if own not in modules:
                continue
            a, b = pair(seed + len(tensors), module.inputs, module.columns, patterns.get(own, rank))
            stem = f"base_model.model.model.layers.{layer}.{name}"
            tensors[f"{stem}.lora_A.weight"] = a.to(dtype)
            tensors[f"{stem}.lora_B.weight"] = b.to(dtype)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "adapter_model.safetensors")
    config_fields = {"peft_type": "LORA", "r": rank, "lora_alpha": 2 * rank, **fields}
    (folder / "adapter_config.json").write_text(json.dumps(config_fields))
    return folder
