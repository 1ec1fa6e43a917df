"""Matrices of a quantised file on the device, in the blocks that the file has."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from typing import cast

import torch
from torch import Tensor

from draftwerk.model.checkpoint.gguf_tensors import plain_values
from draftwerk.model.checkpoint.loader import Checkpoint
from draftwerk.model.checkpoint.stored_matrix import STORED, StoredMatrix
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.checkpoint.weights import LayerWeights, WeightMatrix
from draftwerk.model.gpu.kernels.gguf_blocks import FORMATS, arranged
from draftwerk.model.gpu.kernels.products import Prepare, Product, dense, tiled
from draftwerk.model.gpu.kernels.quantised import Quantised, joined
from draftwerk.model.gpu.kernels.weight_only import few_bits
from draftwerk.model.gpu.kernels.widening import dequantised
from draftwerk.speculative.protocol.frames import OnProgress


class DeviceBlocks:
    """A matrix of one or several parts, one above the other, whose rows are taken as a tensor's."""

    def __init__(self, parts: Sequence[StoredMatrix], dtype: torch.dtype, device: torch.device):
        """`dtype` is that of activations, and of types that no kernel reads."""
        self.dtype, self.device = dtype, device
        self.shape = sum(part.shape[0] for part in parts), parts[0].shape[1]
        self.kinds = [(part.kind, part.shape[0]) for part in parts]
        self.parts = [
            self._arranged(kind, list(some))
            for kind, some in groupby(parts, lambda each: each.kind)
        ]

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Tensor | slice) -> Tensor:
        """Return rows by index, of a matrix of one part such as an embedding."""
        (part,) = self.parts
        if isinstance(part, Tensor):
            return part[rows]
        if isinstance(rows, slice):
            rows = torch.arange(len(self), device=self.device)[rows]
        return dequantised(part, self.dtype, rows)

    def product(self, bias: Tensor | None, exact: bool) -> Product:
        """Return the product with activations."""
        plain = tiled(dense) if exact else dense
        products = [
            plain(part, None) if isinstance(part, Tensor) else few_bits(part, None, exact)
            for part in self.parts
        ]

        def multiply(values: Tensor) -> Tensor:
            found = [product(values) for product in products]
            whole = found[0] if len(found) == 1 else torch.cat(found, dim=1)
            return whole if bias is None else whole + bias

        return multiply

    @property
    def byte_count(self) -> int:
        """Bytes on the device."""
        return sum(
            part.nbytes if isinstance(part, Tensor) else part.byte_count for part in self.parts
        )

    def _arranged(self, kind: str, parts: list[StoredMatrix]) -> Quantised | Tensor:
        if kind not in FORMATS:
            return torch.cat([plain_values(part) for part in parts]).to(self.device, self.dtype)
        return joined([arranged(part, self.device) for part in parts])


def on_device(
    model: Checkpoint,
    dtype: torch.dtype,
    device: torch.device,
    progress: OnProgress = lambda _: None,
) -> Checkpoint:
    """Return a model that was loaded as blocks with all matrices on the device. Raises Refused."""
    weights = model.weights
    if isinstance(weights.lm_head, Tensor):
        raise Refused(f"dtype {STORED!r} is the blocks of a quantised file, which this is not")
    sizes: Counter[str] = Counter()

    def moved(matrix: WeightMatrix) -> Tensor:
        parts = cast(Sequence[StoredMatrix], matrix)
        blocks = DeviceBlocks(parts, dtype, device)
        sizes["file"] += sum(part.byte_count for part in parts)
        sizes["device"] += blocks.byte_count
        # What takes such matrices is made by `stored`, or takes rows alone.
        return cast(Tensor, blocks)

    with model.being_read():
        layers: list[LayerWeights] = []
        for index, layer in enumerate(weights.layers):
            layers.append(layer.with_matrices(moved))
            model.layer_done(index)
        embedding = moved(weights.embedding)
        is_tied = weights.lm_head is weights.embedding
        lm_head = embedding if is_tied else moved(weights.lm_head)
        inputs = weights.inputs
        if inputs is not None:
            own = {name: moved(getattr(inputs, name)) for name in ("embedding", "projection")}
            inputs = replace(inputs, **own)
    size, of_file = (sizes[name] / 1e9 for name in ("device", "file"))
    progress(f"matrices take {size:.1f} GB on the device, {of_file:.1f} in the file")
    held = replace(weights, embedding=embedding, layers=layers, lm_head=lm_head, inputs=inputs)
    return replace(model, weights=held)


def stored(exact: bool) -> Prepare:
    """Make products of matrices that are on the device as `DeviceBlocks`."""
    return lambda weight, bias: cast(DeviceBlocks, weight).product(bias, exact)
