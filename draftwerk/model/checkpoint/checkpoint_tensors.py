"""A checkpoint's tensors by name: of safetensors, of a GGUF, of quantised safetensors."""

from collections.abc import Mapping
from typing import cast

import torch
from safetensors import safe_open
from torch import Tensor

from draftwerk.model.checkpoint.families.architecture import Architecture
from draftwerk.model.checkpoint.files.shards import StoredTensor
from draftwerk.model.checkpoint.gguf_tensors import (
    Dequantise,
    GgufFiles,
    halves_of_neighbours,
    stored_rows,
    tensor_values,
)
from draftwerk.model.checkpoint.lora.lora_merge import MergedAdapters
from draftwerk.model.checkpoint.quantised.quantised_matrices import (
    QuantisedMatrices,
    within_expert,
)
from draftwerk.model.checkpoint.quantised.scheme import Scheme
from draftwerk.model.checkpoint.unsupported import Refused

NamedRows = list[tuple[str, range]]
"""Tensors by name, and which of their rows."""
STORED = {torch.bfloat16: torch.bfloat16}
"""The types that are kept as they are stored; everything else is read as float32."""


def rounded(values: Tensor, dtype: torch.dtype | None) -> Tensor:
    """Return dequantised numbers in a dtype: as they are in float32, else by way of bf16."""
    if dtype == torch.float32:
        return values
    return values.to(torch.bfloat16).to(dtype or torch.bfloat16)


class Tensors:
    """A checkpoint's tensors by name; it has passed `check_tensors`."""

    experts_are_columns = False
    """Whether those of all experts are [experts, in, out], not [experts, out, in]."""
    of_gguf = False
    is_exact = False
    """Whether numbers that bf16 does not hold are kept in float32, where no dtype is given."""

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
        self.merged = MergedAdapters(())
        paths = {tensor.path for tensor in stored.values()}
        self.open = {path: safe_open(path, framework="pt") for path in paths}

    def take(self, name: str, rows: range | None = None) -> Tensor:
        """Return a tensor that the checkpoint is known to hold, or some of its rows."""
        file, own = self.open[self.stored[name].path], self.stored[name].name or name
        shape = self.stored[name].shape
        if (expert := self.stored[name].expert) >= 0:
            first, own_rows = self.stored[name].first, rows or range(shape[0])
            within = slice(first + own_rows.start, first + own_rows.stop)
            tensor = file.get_slice(own)[expert, within]
        elif rows is not None and len(shape) == 3:
            expert, within = within_expert(shape[2 if self.experts_are_columns else 1], rows)
            matrix = file.get_slice(own)[expert]
            tensor = (matrix.T if self.experts_are_columns else matrix)[within].contiguous()
        elif rows is None or len(rows) == shape[0]:
            tensor = file.get_tensor(own)
        elif not rows:
            return torch.empty(0, *shape[1:], dtype=self.dtype)
        else:
            tensor = file.get_slice(own)[rows.start : rows.stop]
        tensor = self.merged.added(name, rows, tensor)
        return tensor.to(self.device, self.dtype or STORED.get(tensor.dtype, torch.float32))

    def norm(self, name: str, row: Architecture) -> Tensor:
        """Return a norm's weights, its offset added in float32, and behind them its biases."""
        weight = self._norm_weight(f"{name}.weight", row.norm_offset)
        bias = self.find(f"{name}.bias") if row.has_norm_bias else None
        return weight if bias is None else torch.cat([weight, bias.to(weight.dtype)])

    def _norm_weight(self, name: str, offset: int) -> Tensor:
        if not offset:
            return self.take(name)
        held = self.stored[name]
        weight = self.open[held.path].get_tensor(held.name or name)
        return weight.to(self.device, torch.float32) + offset

    def in_halves(self, stacked: Tensor, heads: int, size: int, rotary_size: int) -> Tensor:
        """Return rows of heads, and what is below them, so that rotation pairs i with i + half."""
        order = halves_of_neighbours(heads, size, rotary_size).to(stacked.device)
        if stacked.device.type == "meta":
            return stacked
        return torch.cat([stacked[order], stacked[len(order) :]])

    def values(self, name: str) -> Tensor:
        """Return a matrix as numbers, whatever the others are kept as."""
        return self.take(name)

    def exact(self, name: str) -> Tensor:
        """Return a vector in float32, not rounded."""
        return self.take(name).float()

    def decay(self, name: str) -> Tensor:
        """Return the exponents of what a state keeps, in float32."""
        return -self.exact(name).exp()

    def find(self, name: str) -> Tensor | None:
        """Return a tensor, or None where there is none of that name."""
        return self.take(name) if name in self.stored else None

    def fused(self, parts: NamedRows) -> Tensor:
        """Return rows of matrices stacked."""
        if self.matrices:
            return self.matrix(parts)
        (first, _), *_ = parts
        rows = sum(len(rows) for _, rows in parts)
        shape = self.stored[first].shape
        inputs = shape[1] if self.experts_are_columns and len(shape) == 3 else shape[-1]
        return torch.empty(rows, inputs, device="meta")

    def vocabulary(self, name: str, rows: range) -> Tensor:
        """Return rows of the embedding or the lm_head."""
        return self.take(name, rows)

    def matrix(self, parts: NamedRows) -> Tensor:
        """Return rows of matrices stacked, with their numbers."""
        taken = [self.take(name, rows) for name, rows in parts]
        return taken[0] if len(taken) == 1 else torch.cat(taken)

    def fused_bias(self, parts: NamedRows) -> Tensor | None:
        """Return biases joined, or None; a checkpoint has all of them or none."""
        if parts[0][0] not in self.stored:
            return None
        return torch.cat([self.take(name, rows) for name, rows in parts])


class GgufTensors(Tensors):
    """A GGUF's tensors: in bf16, exact in float32, or matrices in the file's own blocks."""

    of_gguf = True

    def __init__(
        self,
        files: GgufFiles,
        dtype: torch.dtype | None,
        device: torch.device,
        keeps_blocks: bool = False,
        dequantise: Dequantise | None = None,
    ) -> None:
        super().__init__({}, dtype, device)
        self.files = files
        self.stored = files.card.tensors
        self.keeps_blocks = keeps_blocks
        self.dequantise = dequantise

    def take(self, name: str, rows: range | None = None) -> Tensor:
        if rows is not None and not rows:
            return torch.empty(0, *self.stored[name].shape[1:], dtype=self.dtype)
        values = tensor_values(self.files, self.stored[name], rows, self.dequantise)
        if self.keeps_blocks:
            return values.to(self.device, self.dtype or torch.float32)
        is_held = not self.is_exact or self.stored[name].kind == "BF16"
        return rounded(values, self.dtype if is_held else torch.float32).to(self.device)

    def _norm_weight(self, name: str, offset: int) -> Tensor:
        # Added already, and not to be rounded.
        return self.exact(name) if offset else self.take(name)

    def exact(self, name: str) -> Tensor:
        return tensor_values(self.files, self.stored[name]).to(self.device)

    def decay(self, name: str) -> Tensor:
        """Return them as they are: the file has no logarithms."""
        return self.exact(name)

    def in_halves(self, stacked: Tensor, heads: int, size: int, rotary_size: int) -> Tensor:
        """Return the rows as they are: the card has their order."""
        return stacked

    def vocabulary(self, name: str, rows: range) -> Tensor:
        return self.matrix([(name, rows)])

    def matrix(self, parts: NamedRows) -> Tensor:
        if not self.keeps_blocks:
            return super().matrix(parts)
        # What reads blocks is told so by their type.
        blocks = [stored_rows(self.files, self.stored[name], rows) for name, rows in parts if rows]
        return cast(Tensor, tuple(blocks))


class QuantisedTensors(Tensors):
    """Tensors of quantised safetensors: in bf16, exact in float32, or matrices as blocks."""

    keeps_blocks: bool
    dequantise: Dequantise

    def __init__(
        self,
        stored: dict[str, StoredTensor],
        scheme: Scheme,
        dtype: torch.dtype | None,
        device: torch.device,
        matrices: bool = True,
    ) -> None:
        super().__init__(stored, dtype, device, matrices)

        def read(name: str, expert: int | None = None) -> Tensor:
            held = stored[name]
            file, own = self.open[held.path], held.name or name
            return file.get_tensor(own) if expert is None else file.get_slice(own)[expert]

        self.quantised = QuantisedMatrices(scheme, stored, read)
        self.stored = self.quantised.inventory

    def take(self, name: str, rows: range | None = None) -> Tensor:
        if name not in self.quantised:
            return super().take(name, rows)
        rows = range(self.stored[name].shape[0]) if rows is None else rows
        values = self.dequantise(self.quantised.blocks(name, rows))
        return rounded(values, torch.float32 if self.is_exact else self.dtype).to(self.device)

    def fused(self, parts: NamedRows) -> Tensor:
        return self._blocks(parts, self.matrices) if self.keeps_blocks else super().fused(parts)

    def in_halves(self, stacked: Tensor, heads: int, size: int, rotary_size: int) -> Tensor:
        if self.keeps_blocks:
            raise Refused(
                "quantised safetensors of this family are not supported: rotation pairs "
                "neighbours in it; take a GGUF, or dtype bf16"
            )
        return super().in_halves(stacked, heads, size, rotary_size)

    def vocabulary(self, name: str, rows: range) -> Tensor:
        return self._blocks([(name, rows)], True) if self.keeps_blocks else self.take(name, rows)

    def _blocks(self, parts: NamedRows, is_read: bool) -> Tensor:
        found = [self.quantised.blocks(*part, is_read=is_read) for part in parts if part[1]]
        return cast(Tensor, tuple(found))
