"""LoRA adapters in plain torch, with PEFT's arithmetic: result + B (A x) * scale, in the dtype.

A row's bits do not depend on the others where those of `linear` do not.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from draftwerk.model.batch.batch import Batch
from draftwerk.model.checkpoint.lora.lora_weights import Adapter, LoraMatrices

Linear = Callable[[Tensor, Tensor, Tensor | None], Tensor]
Adapt = Callable[[str, Tensor, Tensor], Tensor]
"""From a part of a layer, what it reads and what its matrix came to, to what it comes to."""


def unadapted(part: str, values: Tensor, result: Tensor) -> Tensor:
    """Return what the matrix came to."""
    return result


class TorchAdapters:
    """The adapters of a model, by their numbers."""

    def __init__(self, linear: Linear) -> None:
        self._linear = linear
        self._adapters: list[dict[tuple[int, str], list[LoraMatrices]]] = []

    def add(self, adapter: Adapter, device: torch.device, dtype: torch.dtype) -> None:
        """Add an adapter behind those there are."""
        parts: dict[tuple[int, str], list[LoraMatrices]] = {}
        for one in adapter:
            a, b = one.a.to(device, dtype), one.b.to(device, dtype)
            own = LoraMatrices(one.layer, one.part, one.first, a, b, one.scale)
            parts.setdefault((one.layer, one.part), []).append(own)
        self._adapters.append(parts)

    def of_layer(self, layer: int, batch: Batch, wanted: Tensor | None = None) -> Adapt:
        """Return what adds the rows' adapters in a layer, of all tokens or of those wanted."""
        if batch.adapters is None:
            return unadapted
        counts = batch.row_starts.diff()
        rows = batch.adapters.repeat_interleave(counts)
        return partial(self._add, rows if wanted is None else rows[wanted], layer)

    def _add(self, rows: Tensor, layer: int, part: str, values: Tensor, result: Tensor) -> Tensor:
        result = result.clone()
        for number, adapter in enumerate(self._adapters):
            own = (rows == number).nonzero().flatten()
            for one in adapter.get((layer, part), []) if len(own) else ():
                inner = self._linear(values[own], one.a, None)
                added = self._linear(inner, one.b, None) * one.scale
                result[own, one.first : one.first + len(one.b)] += added
        return result
