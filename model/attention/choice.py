"""Which attention serves a device: an explicit table, and its signature."""

from typing import Protocol

import torch
from torch import Tensor

from model.attention import reference
from model.batch import Batch
from model.refusal import Refused


class Attention(Protocol):
    """flash-attn's paged varlen form: every new token of a batch over one layer's pages."""

    def __call__(self, query: Tensor, keys: Tensor, values: Tensor, batch: Batch) -> Tensor:
        """Map [T, heads, D] to the same; pages are [blocks, block_size, kv_heads, D]."""
        ...


BACKENDS: dict[str, Attention] = {"reference": reference.attend}
AUTOMATIC = {"cpu": "reference", "cuda": "reference"}
"""The best backend of each kind of device."""


def choose_attention(name: str, device: torch.device) -> Attention:
    """Return a backend by name, or the device's best for "auto"."""
    if name == "auto":
        name = AUTOMATIC.get(device.type, "reference")
    if name not in BACKENDS:
        raise Refused(f"attention {name!r} is not one of auto, {', '.join(BACKENDS)}")
    return BACKENDS[name]
