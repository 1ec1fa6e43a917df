"""Which attention serves a device: an explicit table, and its signature."""

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from model.attention import reference
from model.attention.padded import PaddedAttention
from model.batch import Batch
from model.refusal import Refused


class Attention(Protocol):
    """flash-attn's paged varlen form: every new token of a batch over one layer's pages."""

    def __call__(self, query: Tensor, keys: Tensor, values: Tensor, batch: Batch) -> Tensor:
        """Map [T, heads, D] to the same; pages are [blocks, block_size, kv_heads, D]."""
        ...


BACKENDS: dict[str, Callable[[], Attention]] = {
    "padded": PaddedAttention,
    "reference": lambda: reference.attend,
}
AUTOMATIC = {"cpu": "padded", "cuda": "padded"}
"""The best backend of each kind of device."""


def choose_attention(name: str, device: torch.device) -> tuple[str, Attention]:
    """Return a backend and its name; "auto" is the best for the device."""
    if name == "auto":
        name = AUTOMATIC[device.type]
    if name not in BACKENDS:
        raise Refused(f"attention {name!r} is not one of auto, {', '.join(BACKENDS)}")
    return name, BACKENDS[name]()
