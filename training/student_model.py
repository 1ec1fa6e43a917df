"""A student of a model: some of its layers, to begin with, and the directory that serves it."""

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

BY_LAYER = ("layer_types", "no_rope_layers")
"""Fields of a description that say something of each layer."""
COPIED = ("tokenizer*", "*.jinja", "generation_config.json")
"""What a draft model's directory holds beside its weights and their description."""


def kept(layers: int, count: int) -> list[int]:
    """Return a student's layers: the lowest half, which read, and the uppermost, which predict."""
    lowest = -(-count // 2)
    return [*range(lowest), *range(layers - (count - lowest), layers)]


def begin(model: Any, count: int) -> Any:
    """Return a student in float32: `count` of a model's layers, its embedding and its last norm."""
    described, layers = model.config.to_dict(), kept(len(model.layers), count)
    config = type(model.config)(**{**described, **described_layers(described, layers)})
    student = type(model)(config).float().to(model.embed_tokens.weight.device)
    student.embed_tokens.load_state_dict(model.embed_tokens.state_dict())
    student.embed_tokens.requires_grad_(False)
    student.norm.load_state_dict(model.norm.state_dict())
    for mine, index in enumerate(layers):
        student.layers[mine].load_state_dict(model.layers[index].state_dict())
    return student


def described_layers(config: Mapping[str, Any], layers: Sequence[int]) -> dict[str, Any]:
    """Return the fields of a student's description that its layers decide."""
    by_layer = {name: config[name] for name in BY_LAYER if config.get(name)}
    found = {name: [each[index] for index in layers] for name, each in by_layer.items()}
    return {"num_hidden_layers": len(layers), **found}


def write(student: Any, head: Tensor | None, source: Path, directory: Path) -> None:
    """Make a directory of a student that is served as other models are.

    `head` is the model's lm_head, None where it is the embedding.
    """
    directory.mkdir(parents=True, exist_ok=True)
    for pattern in COPIED:
        for path in source.glob(pattern):
            shutil.copy(path, directory / path.name)
    described = json.loads((source / "config.json").read_text())
    own = student.config.to_dict()
    described |= described_layers(own, range(len(student.layers)))
    described["tie_word_embeddings"] = head is None
    (directory / "config.json").write_text(json.dumps(described, indent=1))
    tensors = {
        f"model.{name}": value.detach().to("cpu", torch.bfloat16).contiguous()
        for name, value in student.state_dict().items()
    }
    if head is not None:
        tensors["lm_head.weight"] = head.detach().to("cpu", torch.bfloat16).contiguous()
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
