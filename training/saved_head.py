"""A draft head as the server reads it."""

from dataclasses import fields
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from draftwerk.model.checkpoint.weights import Weights
from draftwerk.model.draft_head.head import TARGET, DraftHead, fingerprint


def save(head: DraftHead, weights: Weights, path: Path) -> None:
    """Write a head for a target, matrices in bf16."""
    stored: dict[str, Tensor] = {}
    for field in fields(head):
        value: Tensor = getattr(head, field.name)
        dtype = torch.bfloat16 if value.dim() > 1 else torch.float32
        stored[field.name] = value.to(torch.int32 if field.name == "vocabulary" else dtype)
    save_file(stored, path, {TARGET: fingerprint(weights)})
