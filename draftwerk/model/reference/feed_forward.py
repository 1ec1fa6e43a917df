"""The FFN of a layer: dense, of experts, or both; what its own embedding adds behind it."""

from collections.abc import Callable, Sequence
from functools import partial
from math import sqrt

import torch
from torch import Tensor
from torch.nn.functional import gelu, relu, silu

from draftwerk.model.checkpoint.config import ModelConfig
from draftwerk.model.checkpoint.weights import ExpertWeights, LayerWeights, Weights
from draftwerk.model.reference.adapters import Adapt
from draftwerk.model.reference.norms import Norms
from draftwerk.model.reference.tiled_products import GatherColumns, TiledProducts, by_tiles

SIGMOID_EPS = 1e-6
"""Added to what weights are divided by where they are sigmoids."""
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": silu,
    "gelu_tanh": partial(gelu, approximate="tanh"),
    "relu_squared": lambda values: relu(values).square(),
}


class FeedForward:
    """The FFN of every layer of a model, or one rank's columns of it."""

    def __init__(
        self, config: ModelConfig, linear: TiledProducts, gather: GatherColumns, norm: Norms
    ) -> None:
        self._config, self._graph = config, config.graph
        self._linear = linear
        self._gather = gather
        self._norm = norm

    def __call__(self, layer: LayerWeights, hidden: Tensor, normed: Tensor, adapt: Adapt) -> Tensor:
        """Return what hidden states [T, hidden], and those normed for the FFN, come to."""
        if layer.experts is None:
            return self._dense(layer, normed, adapt)
        routed = of_experts = normed
        if layer.experts.norm is not None:
            of_experts = self._norm(hidden, layer.experts.norm)
            routed = self._norm(hidden, layer.experts.router_norm)
        fed = self._norm(self._experts(layer.experts, routed, of_experts), layer.experts.after)
        if layer.gate_up is None:
            return fed
        shared, gate = self._dense(layer, normed, adapt), layer.experts.shared_gate
        shared = self._norm(shared, layer.experts.after_dense)
        if self._config.experts and self._config.experts.shared_is_gated and gate is not None:
            shared = self._linear(normed, gate, None).sigmoid() * shared
        return fed + shared

    def _experts(self, experts: ExpertWeights, routed: Tensor, normed: Tensor) -> Tensor:
        """Return what each token's experts come to, weighed, in the order of their numbers.

        Their router reads `routed`.
        """
        weights = by_tiles(partial(self._weights, experts), routed, self._norm.tile)
        weights = weights.to(normed.dtype)
        fed = torch.zeros_like(normed)
        for expert in weights.any(0).nonzero().flatten().tolist():
            rows = weights[:, expert].nonzero().flatten()
            up_bias, down_bias = experts.biases(expert)
            gated = self._gated(self._linear(normed[rows], experts.gate_up[expert], up_bias))
            added = self._linear(gated, experts.down[expert], down_bias)
            fed = fed.index_add(0, rows, added * weights[rows, expert, None])
        return fed

    def _weights(self, experts: ExpertWeights, routed: Tensor) -> Tensor:
        """Return each token's weight of every expert, [T, experts]; 0 of those not chosen."""
        shape = self._config.experts
        assert shape is not None
        scores = self._linear(routed, experts.router, experts.router_bias).float()
        is_sigmoid, bias = shape.scores == "sigmoid", experts.choice_bias
        scores = scores.sigmoid() if is_sigmoid else scores.softmax(-1)
        chosen = (scores if bias is None else scores + bias.float()).topk(shape.used).indices
        weights = scores.gather(1, chosen)
        if shape.normalises:
            weights = weights / (weights.sum(-1, keepdim=True) + is_sigmoid * SIGMOID_EPS)
        if experts.scales is not None:
            weights = weights * experts.scales[chosen]
        return torch.zeros_like(scores).scatter(1, chosen, weights * shape.weight_scale)

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


class LayerEmbedder:
    """Embedded tokens, and the inputs of a model's layers beside the hidden state."""

    def __init__(self, config: ModelConfig, linear: TiledProducts, norm: Norms) -> None:
        self._config, self._graph = config, config.graph
        self._size = config.graph.per_layer_size
        self._linear, self._norm = linear, norm

    def embedded(self, embedding: Tensor, tokens: Tensor) -> Tensor:
        """Return the hidden state before the first layer."""
        hidden, multiplier = embedding[tokens], self._graph.embedding_multiplier
        if multiplier == 1.0:
            return hidden
        if self._graph.rounds_embedding_multiplier:
            return hidden * torch.tensor(multiplier, dtype=hidden.dtype, device=hidden.device)
        return hidden * multiplier

    def of(self, weights: Weights, tokens: Tensor, hidden: Tensor) -> Sequence[Tensor]:
        """Return each layer's input [T, per_layer_size] of embedded tokens; empty without any."""
        if weights.inputs is None or not self._size:
            return [hidden[:, :0]] * self._config.layer_count
        own = weights.inputs
        projected = self._linear(hidden, own.projection, None) * self._config.hidden_size**-0.5
        projected = self._norm(projected.unflatten(1, (-1, self._size)), own.norm)
        scale = torch.tensor(sqrt(self._size), dtype=hidden.dtype, device=hidden.device)
        embedded = (own.embedding[tokens] * scale).view_as(projected)
        return ((projected + embedded) * 2**-0.5).unbind(1)

    def added(self, layer: LayerWeights, hidden: Tensor, given: Tensor) -> Tensor:
        """Return the hidden state with a layer's input added, times the layer's scalar."""
        if layer.input is not None and self._size:
            gate = self._linear(hidden, layer.input.gate, None)
            gated = ACTIVATIONS[self._graph.activation](gate) * given
            added = self._linear(gated, layer.input.output, None)
            hidden = hidden + self._norm(added, layer.input.norm)
        if layer.scalar is None or not self._graph.has_layer_scalar:
            return hidden
        return hidden * layer.scalar.to(hidden.dtype)
