"""The decoder of every family in plain torch, over one flattened round.

It is the twin the fast kernels are compared with, and what runs where they cannot.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, Protocol, cast

import torch
from torch import Tensor
from torch.nn.functional import gelu, layer_norm, linear, pad, relu, silu

from draftwerk.model.attention.signature import PLAIN, Attention, ScoredAttention, Scoring
from draftwerk.model.batch.batch import Batch, BatchState, Pages
from draftwerk.model.checkpoint.config import ModelConfig
from draftwerk.model.checkpoint.lora.lora_weights import Adapter
from draftwerk.model.checkpoint.shard import Shard, whole
from draftwerk.model.checkpoint.weights import ExpertWeights, LayerWeights, Weights
from draftwerk.model.reference.adapters import Adapt, TorchAdapters
from draftwerk.model.reference.convolution import TapSlots, convolved, store_inputs
from draftwerk.model.reference.delta import DeltaLayers

TILE = 32
"""Rows of every product on a CPU, so that a row's bits depend less on how many others there are.

The most up to which oneDNN's bf16 products were measured to be row-invariant.
"""
SIGMOID_EPS = 1e-6
"""Added to what weights are divided by where they are sigmoids."""
WIDE_SHARE = 0.25
"""Of the machine's memory, that copies of the matrices in float32 may take."""


Rotation = tuple[Tensor, Tensor]
"""Cosines and sines."""


class Mixed(NamedTuple):
    """What a layer keeps of a batch's tokens until they are mixed."""

    query: Tensor
    """Of attention, rotated [T, heads, D]; of a delta rule what the tokens come to."""
    gate: Tensor | None = None
    """Of what they come to [T, ...]."""


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": silu,
    "gelu_tanh": partial(gelu, approximate="tanh"),
    "relu_squared": lambda values: relu(values).square(),
}


class GatherColumns(Protocol):
    """Returns all columns of [T, own columns]; the kind is attended, hidden, ffn or vocab."""

    def __call__(self, own: Tensor, kind: str, /) -> Tensor: ...


def all_mine(own: Tensor, kind: str) -> Tensor:
    """Return the columns of a model that is not divided."""
    return own


class TorchForward:
    """A `Forward` in the numerics of Transformers: norms in float32, the rest in `dtype`."""

    def __init__(
        self,
        config: ModelConfig,
        weights: Weights,
        attention: Attention,
        shard: Shard | None = None,
        gather: GatherColumns = all_mine,
    ) -> None:
        """Of a `shard` the weights are those that a rank has, and pages those of its layers."""
        self.config = config
        self.shard = shard or whole(config)
        self.gather = gather
        self.weights = weights
        self.attention = attention
        self.graph = config.graph
        self.scorings = [
            Scoring(self.graph.attention_scale, self.graph.attention_softcap, config.kind(i).window)
            for i in self.shard.layers
        ]
        own = [config.planes[index] for index in self.shard.layers]
        self.planes = [range(each.start - own[0].start, each.stop - own[0].start) for each in own]
        """Of the pages, by layer."""
        self.mixers = [config.kind(index).mixer for index in self.shard.layers]
        self.delta = None if config.delta is None else DeltaLayers(config.delta)
        self.tapped = TapSlots(config.taps)
        self.states: Tensor | None = None
        """What the head read in the latest call, [S, hidden] in any dtype."""
        self.adapters = TorchAdapters(self._linear)
        # A GPU has kernels for every height, and is asked for exactness elsewhere.
        self.tile = TILE if weights.embedding.device.type == "cpu" else 0
        self.wide: dict[int, Tensor] = {}
        """Matrices in float32 by the identity of their bf16 ones: for steps of several tokens."""
        device = weights.embedding.device
        self.frequencies = [
            torch.tensor(each.inverse_frequencies, device=device) for each in config.rotaries
        ]

    def add_adapter(self, adapter: Adapter) -> None:
        """Add an adapter behind those there are; batches name it by its number."""
        embedding = self.weights.embedding
        self.adapters.add(adapter, embedding.device, embedding.dtype)

    def __call__(self, batch: Batch, pages: Pages) -> Tensor:
        """Write the batch's K and V into the pages, return float32 logits [S, vocab]."""
        return self.run_stage(batch, pages, None)

    @torch.inference_mode()
    def run_stage(self, batch: Batch, pages: Pages, hidden: Tensor | None) -> Tensor:
        """Return the logits, or before the last stage what the layers have come to [T, hidden].

        `hidden` is what the stage before has come to; without one the tokens are embedded.
        """
        rotations = self._rotations(batch.positions)
        if hidden is None:
            hidden = self._embed(batch.tokens)
        layers = self.weights.layers[: batch.layers]
        # Before the last stage every layer has all tokens: a later one goes on with them.
        every = len(layers) - self.shard.is_last
        for index, layer in enumerate(layers[:every]):
            adapt = self.adapters.of_layer(index, batch)
            normed = self._norm(hidden, layer.attention_norm)
            stored = self._store(layer, index, normed, rotations, batch, pages, adapt)
            attended = self._mix(layer, stored, index, batch, pages)
            hidden = self._finish(layer, hidden, normed, attended, adapt)
        if not self.shard.is_last:
            return hidden
        hidden = self._last(layers[every], every, hidden, rotations, batch, pages)
        self.states = self._norm(hidden, self.weights.norm)
        read = self.states[: batch.logit_count]
        logits = self.gather(self._linear(read, self.weights.lm_head, None), "vocab").float()
        if self.graph.logit_scale != 1.0:
            logits = logits * self.graph.logit_scale
        cap = self.graph.logit_softcap
        return (logits / cap).tanh() * cap if cap else logits

    def _last(
        self,
        layer: LayerWeights,
        index: int,
        hidden: Tensor,
        rotations: list[Rotation],
        batch: Batch,
        pages: Pages,
    ) -> Tensor:
        """Run the last layer: what is kept of all tokens, the rest of those with logits [S].

        Nothing reads what the others would come to.
        """
        normed = self._norm(hidden, layer.attention_norm)
        adapt = self.adapters.of_layer(index, batch)
        stored = self._store(layer, index, normed, rotations, batch, pages, adapt)
        if not len(batch.outputs):
            return hidden[:0]
        attended = self._mix(layer, stored, index, batch, pages)
        wanted = batch.outputs
        adapt = self.adapters.of_layer(index, batch, wanted)
        return self._finish(layer, hidden[wanted], normed[wanted], attended[wanted], adapt)

    def _finish(
        self, layer: LayerWeights, hidden: Tensor, normed: Tensor, attended: Tensor, adapt: Adapt
    ) -> Tensor:
        """Add what attention and the FFN come to."""
        mixed = self._project(layer, attended, adapt)
        hidden = self._add(hidden, mixed, layer.after_attention)
        if not self.graph.is_parallel:
            normed = self._norm(hidden, layer.ffn_norm)
        return self._add(hidden, self._feed(layer, normed, adapt), layer.after_ffn)

    def _add(self, hidden: Tensor, added: Tensor, norm: Tensor | None) -> Tensor:
        added = self._norm(added, norm)
        if self.graph.residual_multiplier != 1.0:
            added = added * self.graph.residual_multiplier
        return hidden + added

    def _embed(self, tokens: Tensor) -> Tensor:
        hidden = self.weights.embedding[tokens]
        multiplier = self.graph.embedding_multiplier
        if multiplier == 1.0:
            return hidden
        if self.graph.rounds_embedding_multiplier:
            return hidden * torch.tensor(multiplier, dtype=hidden.dtype, device=hidden.device)
        return hidden * multiplier

    def _rotations(self, positions: Tensor) -> list[Rotation]:
        """Return cos and sin [T, 1, pairs] of each rotary, in the weights' dtype."""
        dtype = self.weights.embedding.dtype
        if self.graph.rotary_rounding == "result":
            dtype = torch.float32
        found: list[Rotation] = []
        for rotary, frequencies in zip(self.config.rotaries, self.frequencies, strict=True):
            angles = (positions[:, None].float() * frequencies)[:, None]
            cos, sin = angles.cos() * rotary.magnitude, angles.sin() * rotary.magnitude
            found.append((cos.to(dtype), sin.to(dtype)))
        return found

    def _norm(self, values: Tensor, weight: Tensor | None) -> Tensor:
        """Return values normed over the last dimension; without weights as they are."""
        eps = self.config.norm_eps
        if weight is None:
            return values
        wide = values.float()
        if self.graph.norm == "layer":
            size = values.shape[-1]
            own, bias = weight.float()[:size], weight.float()[size:]
            normed = layer_norm(wide, (size,), own, bias if len(bias) else None, eps)
            return normed.to(values.dtype)
        scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
        if self.graph.norm == "rms":
            return weight * (wide * scale).to(values.dtype)
        return (weight.float() * (wide * scale)).to(values.dtype)

    def _norm_heads(self, heads: Tensor, weight: Tensor | None) -> Tensor:
        """Norm queries or keys [T, heads, D]."""
        if weight is None or self.graph.head_norm == "shared":
            return self._norm(heads, weight)
        if self.graph.head_norm == "each":
            own = weight.view(-1, heads.shape[-1])[: heads.shape[1]]
            each = [self._norm(heads[:, i], one) for i, one in enumerate(own)]
            return torch.stack(each, 1)
        return self._norm(heads.flatten(1), weight).view_as(heads)

    def _mix(
        self, layer: LayerWeights, stored: Mixed, index: int, batch: Batch, pages: Pages
    ) -> Tensor:
        """Return what each token comes to by those that it sees, before the last product."""
        query, gate = stored
        if self.mixers[index] == "delta":
            return query
        if self.mixers[index] == "convolution":
            assert layer.taps is not None
            own = layer.taps, pages, self.planes[index], self.tapped(batch, pages.block_size)
            return query * convolved(*own, query.dtype)
        attended = self._attend(layer, query, index, batch, pages)
        return attended if gate is None else attended.flatten(1) * gate.sigmoid()

    def _scan(
        self, layer: LayerWeights, index: int, normed: Tensor, batch: Batch, pages: Pages
    ) -> Tensor:
        """Return what tokens come to by a delta rule; their states are written."""
        assert self.delta is not None and layer.taps is not None and layer.delta is not None
        number = self.mixers[:index].count("delta")
        inputs = self._linear(normed, layer.qkv, layer.qkv_bias)
        own = layer.taps, layer.delta, inputs, batch.states, pages.states
        return self.delta.mix(number, *own, self.config.norm_eps)

    def advance(self, rows: Sequence[tuple[BatchState, Sequence[int]]], pages: Pages) -> None:
        """Take states of the latest batch along the nodes that were accepted."""
        if self.delta is not None and pages.states is not None:
            self.delta.advance(rows, pages.states)

    def _attend(
        self, layer: LayerWeights, query: Tensor, index: int, batch: Batch, pages: Pages
    ) -> Tensor:
        keys, values = self._pages_of(index, pages)
        scoring = self.scorings[index]
        if self.graph.has_sinks:
            scoring = scoring._replace(sinks=layer.sinks)
        elif scoring == PLAIN:
            return self.attention(query, keys, values, batch)
        return cast(ScoredAttention, self.attention)(query, keys, values, batch, scoring)

    def _pages_of(self, index: int, pages: Pages) -> tuple[Tensor, Tensor]:
        """Return a layer's keys and values, of this rank's heads."""
        own = self.shard.kv_heads
        plane = self.planes[index].start
        keys, values = pages.keys[plane], pages.values[plane]
        return keys[:, :, own.start : own.stop], values[:, :, own.start : own.stop]

    def _store(
        self,
        layer: LayerWeights,
        index: int,
        normed: Tensor,
        rotations: list[Rotation],
        batch: Batch,
        pages: Pages,
        adapt: Adapt,
    ) -> Mixed:
        """Write keys and values into the pages; return the rotated queries [T, heads, D].

        Of a convolution its inputs are written, and the gates of its outputs are returned.
        """
        if self.mixers[index] == "delta":
            return Mixed(self._scan(layer, index, normed, batch, pages))
        if self.mixers[index] == "convolution":
            gate, query, value = self._linear(normed, layer.qkv, layer.qkv_bias).chunk(3, dim=1)
            store_inputs(gate * value, pages, self.planes[index], batch.slots)
            return Mixed(query)
        heads, kv_heads = len(self.shard.heads), len(self.shard.kv_heads)
        qkv = adapt("qkv", normed, self._linear(normed, layer.qkv, layer.qkv_bias))
        gate = None
        if self.graph.has_output_gate:
            width = heads * self.config.head_size
            qkv, gate = qkv.split([qkv.shape[1] - width, width], dim=1)
        by_head = qkv.reshape(len(qkv), heads + 2 * kv_heads, self.config.head_size)
        query, key, value = by_head.split([heads, kv_heads, kv_heads], dim=1)
        graph, rotary = self.graph, self.config.kind(index + self.shard.layers.start).rotary
        if not graph.norms_after_rotation:
            query, key = (
                self._norm_heads(query, layer.query_norm),
                self._norm_heads(key, layer.key_norm),
            )
        if rotary >= 0:
            query, key = (
                self._turned(query, rotations[rotary]),
                self._turned(key, rotations[rotary]),
            )
        if graph.norms_after_rotation:
            query, key = (
                self._norm_heads(query, layer.query_norm),
                self._norm_heads(key, layer.key_norm),
            )
        keys, values = self._pages_of(index, pages)
        keys.view(-1, *keys.shape[2:])[batch.slots] = key
        values.view(-1, *values.shape[2:])[batch.slots] = value
        if not graph.temperature_beta:
            return Mixed(query, gate)
        turns = (batch.positions / graph.temperature_length).floor()
        heat = 1 + graph.temperature_beta * torch.log1p(turns)
        return Mixed(query * heat[:, None, None].to(query.dtype), gate)

    def _turned(self, heads: Tensor, rotation: Rotation) -> Tensor:
        """Rotate the first dimensions of [T, heads, D]."""
        size = 2 * rotation[0].shape[-1]
        turning = heads[..., :size]
        if self.graph.rotary_rounding != "all":
            turning = turning.float()
        turned = rotated(turning, rotation).to(heads.dtype)
        return turned if size == heads.shape[-1] else torch.cat([turned, heads[..., size:]], -1)

    def _project(self, layer: LayerWeights, attended: Tensor, adapt: Adapt) -> Tensor:
        attended = self.gather(attended.flatten(1), "attended")
        output = adapt("output", attended, self._linear(attended, layer.output, layer.output_bias))
        return self.gather(output, "hidden")

    def _feed(self, layer: LayerWeights, normed: Tensor, adapt: Adapt) -> Tensor:
        if layer.experts is None:
            return self._dense(layer, normed, adapt)
        fed = self._experts(layer.experts, normed)
        if layer.gate_up is None:
            return fed
        shared, gate = self._dense(layer, normed, adapt), layer.experts.shared_gate
        if self.config.experts and self.config.experts.shared_is_gated and gate is not None:
            shared = self._linear(normed, gate, None).sigmoid() * shared
        return fed + shared

    def _experts(self, experts: ExpertWeights, normed: Tensor) -> Tensor:
        """Return what each token's experts come to, weighed, in the order of their numbers."""
        shape = self.config.experts
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
        if not self.graph.is_gated:
            return ACTIVATIONS[self.graph.activation](gate_up)
        gate, up = gate_up.chunk(2, dim=-1)
        if limit := self.graph.gate_limit:
            gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
            return (up + 1) * (gate * (gate * self.graph.gate_slope).sigmoid())
        return ACTIVATIONS[self.graph.activation](gate) * up

    def _dense(self, layer: LayerWeights, normed: Tensor, adapt: Adapt) -> Tensor:
        gate_up, down = layer.dense
        gates = adapt("gate_up", normed, self._linear(normed, gate_up, layer.gate_up_bias))
        gated = self.gather(self._gated(gates), "ffn")
        fed = adapt("down", gated, self._linear(gated, down, layer.down_bias))
        return self.gather(fed, "hidden")

    def _untiled(self, values: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        wide = self.wide.get(id(weight)) if len(values) > 1 else None
        if wide is None:
            return linear(values, weight, bias)
        return linear(values.float(), wide, bias if bias is None else bias.float()).to(values.dtype)

    def _linear(self, values: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        if not self.tile:
            return self._untiled(values, weight, bias)
        return tiled_linear(values, weight, bias, self.tile)


def tiled_linear(values: Tensor, weight: Tensor, bias: Tensor | None, tile: int = TILE) -> Tensor:
    """Multiply rows [T, in] by weights [out, in], so many at a time."""
    if not len(values):
        return values.new_empty(0, len(weight))
    padded = pad(values, (0, 0, 0, -len(values) % tile))
    parts = [linear(rows, weight, bias) for rows in padded.split(tile)]
    return (parts[0] if len(parts) == 1 else torch.cat(parts))[: len(values)]


def prefer_speed(forward: TorchForward, memory_bytes: int) -> None:
    """Give up equal bits in batches of unlike size for speed, on a CPU.

    Without AVX-512, torch's bf16 products are fast for one row only: 16 rows take 2.6 times as long
    as in float32. Where there is memory, matrices are therefore kept in float32 as well.
    """
    if forward.tile:
        forward.tile = 0
        weights = forward.weights
        matrices = [weights.lm_head]
        for layer in weights.layers:
            matrices += layer.matrices
        size = sum(4 * matrix.numel() for matrix in matrices)
        if weights.lm_head.dtype == torch.bfloat16 and size < memory_bytes * WIDE_SHARE:
            forward.wide = {id(matrix): matrix.float() for matrix in matrices}


def rotated(values: Tensor, rotation: Rotation) -> Tensor:
    """Rotate dimension i with dimension i + D / 2 of [T, heads, D]."""
    cos, sin = rotation
    first, second = values.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
