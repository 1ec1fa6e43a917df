"""The FFN of a layer: dense, of experts, or both."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import gelu, relu, silu

from draftwerk.model.checkpoint.config import ModelConfig
from draftwerk.model.checkpoint.weights import ExpertWeights, LayerWeights
from draftwerk.model.reference.adapters import Adapt
from draftwerk.model.reference.columns import GatherColumns
from draftwerk.model.reference.tiled_products import TiledProducts

SIGMOID_EPS = 1e-6
"""Added to what weights are divided by where they are sigmoids."""
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": silu,
    "gelu_tanh": partial(gelu, approximate="tanh"),
    "relu_squared": lambda values: relu(values).square(),
}


class FeedForward:
    """The FFN of every layer of a model, or one rank's columns of it."""

    def __init__(self, config: ModelConfig, linear: TiledProducts, gather: GatherColumns) -> None:
        self._config, self._graph = config, config.graph
        self._linear = linear
        self._gather = gather

    def __call__(self, layer: LayerWeights, normed: Tensor, adapt: Adapt) -> Tensor:
        """Return what normed hidden states [T, hidden] come to."""
        if layer.experts is None:
            return self._dense(layer, normed, adapt)
        fed = self._experts(layer.experts, normed)
        if layer.gate_up is None:
            return fed
        shared, gate = self._dense(layer, normed, adapt), layer.experts.shared_gate
        if self._config.experts and self._config.experts.shared_is_gated and gate is not None:
            shared = self._linear(normed, gate, None).sigmoid() * shared
        return fed + shared

    def _experts(self, experts: ExpertWeights, normed: Tensor) -> Tensor:
        """Return what each token's experts come to, weighed, in the order of their numbers."""
        shape = self._config.experts
        assert shape is not None
        scores = self._linear(normed, experts.router, experts.router_bias).float()
        is_sigmoid, bias = shape.scores == "sigmoid", experts.choice_bias
        scores = scores.sigmoid() if is_sigmoid else scores.softmax(-1)
        chosen = (scores if bias is None else scores + bias.float()).topk(shape.used).indices
        weights = scores.gather(1, chosen)
        if shape.normalises:
            weights = weights / (weights.sum(-1, keepdim=True) + is_sigmoid * SIGMOID_EPS)
        weights = (weights * shape.weight_scale).to(normed.dtype)
        fed = torch.zeros_like(normed)
        for expert in chosen.unique().tolist():
            rows, places = (chosen == expert).nonzero(as_tuple=True)
            up_bias, down_bias = experts.biases(expert)
            gated = self._gated(self._linear(normed[rows], experts.gate_up[expert], up_bias))
            added = self._linear(gated, experts.down[expert], down_bias)
            fed = fed.index_add(0, rows, added * weights[rows, places, None])
        return fed

    def _gated(self, gate_up: Tensor) -> Tensor:
        if not self._graph.is_gated:
            return ACTIVATIONS[self._graph.activation](gate_up)
        gate, up = gate_up.chunk(2, dim=-1)
        if limit := self._graph.gate_limit:
            gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
            return (up + 1) * (gate * (gate * self._graph.gate_slope).sigmoid())
        return ACTIVATIONS[self._graph.activation](gate) * up

    def _dense(self, layer: LayerWeights, normed: Tensor, adapt: Adapt) -> Tensor:
        gate_up, down = layer.dense
        gates = adapt("gate_up", normed, self._linear(normed, gate_up, layer.gate_up_bias))
        gated = self._gather(self._gated(gates), "ffn")
        fed = adapt("down", gated, self._linear(gated, down, layer.down_bias))
        return self._gather(fed, "hidden")
