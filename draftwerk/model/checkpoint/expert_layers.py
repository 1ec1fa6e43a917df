"""The weights of a layer's FFN of experts."""

from collections.abc import Sequence

import torch
from torch import Tensor

from draftwerk.model.checkpoint.checkpoint_tensors import NamedRows, Tensors
from draftwerk.model.checkpoint.config import Experts
from draftwerk.model.checkpoint.families.architecture import Architecture
from draftwerk.model.checkpoint.inventory import FUSED, expert_names
from draftwerk.model.checkpoint.weights import ExpertWeights


def expert_weights(
    tensors: Tensors,
    experts: Experts,
    row: Architecture,
    layer: str,
    hidden: range,
    hidden_size: int,
) -> ExpertWeights:
    """Read a layer's experts: each one's tensors, or its rows of one tensor of all."""
    names, size = row.tensor_names(tensors.of_gguf), experts.ffn_size
    is_fused = f"{layer}{FUSED}.weight" in tensors.stored
    gate_up, down = expert_names(row, tensors.of_gguf, is_fused)

    def rows(part: str, expert: int, count: int) -> tuple[str, range]:
        first = 0 if "{}" in part else expert * count
        return f"{layer}{part.format(expert)}.weight", range(first, first + count)

    each = range(experts.count)
    height = size * (2 // len(gate_up))

    def gates_and_ups(expert: int) -> NamedRows:
        found = [rows(one, expert, height) for one in gate_up]
        if not tensors.experts_are_columns:
            return found
        ((name, both),) = found
        return [(name, both[::2]), (name, both[1::2])]

    biases = [tensors.find(f"{layer}{name}.bias") for name in gate_up]
    choice = f"{layer}{names.choice_bias}"
    shared_gate = tensors.find(f"{layer}{names.shared_gate}.weight")

    def own_norm(name: str) -> Tensor | None:
        return tensors.norm(layer + name, row) if name else None

    def scales(name: str, factor: float = 1.0) -> Tensor | None:
        return tensors.exact(f"{layer}{name}.weight").flatten() * factor if name else None

    return ExpertWeights(
        router=tensors.values(f"{layer}{names.router}.weight"),
        gate_up=[tensors.fused(gates_and_ups(expert)) for expert in each],
        down=[tensors.fused([rows(down, expert, len(hidden))]) for expert in each],
        shared_gate=None if shared_gate is None else shared_gate.view(1, -1),
        choice_bias=tensors.exact(choice) if choice in tensors.stored else None,
        router_bias=tensors.find(f"{layer}{names.router}.bias"),
        gate_up_bias=_halves(biases, tensors.experts_are_columns),
        down_bias=tensors.find(f"{layer}{down}.bias"),
        norm=own_norm(names.expert_norm),
        after=own_norm(names.after_experts),
        after_dense=own_norm(names.after_dense),
        router_norm=scales(names.router_scale, hidden_size**-0.5),
        scales=scales(names.expert_scale),
    )


def _halves(biases: Sequence[Tensor | None], interleave: bool) -> Tensor | None:
    """Return the biases of gates and, behind them, of ups; [experts, 2 * ffn]."""
    found = [each for each in biases if each is not None]
    if not found:
        return None
    return torch.cat([found[0][:, ::2], found[0][:, 1::2]] if interleave else found, 1)
