"""A decoder in plain torch, over one flattened round: its layers attend, one after the other.

    tokens ─ embedded ─ [norm, attention ─ norm, FFN] x layers ─ norm ─ lm_head ─> logits

Families and options override what their layers do besides (`forward.py`).
"""

from typing import NamedTuple, cast

import torch
from torch import Tensor

from draftwerk.model.attention.signature import PLAIN, Attention, ScoredAttention, Scoring
from draftwerk.model.batch.batch import Batch, Pages
from draftwerk.model.batch.e4m3 import write
from draftwerk.model.checkpoint.config import ModelConfig
from draftwerk.model.checkpoint.shard import Shard, whole
from draftwerk.model.checkpoint.weights import LayerWeights, Weights
from draftwerk.model.reference.adapters import Adapt, unadapted
from draftwerk.model.reference.feed_forward import FeedForward, LayerEmbedder
from draftwerk.model.reference.kv_pages import heads_in
from draftwerk.model.reference.norms import Norms
from draftwerk.model.reference.rotation import Rotaries, Rotation
from draftwerk.model.reference.tiled_products import TILE, GatherColumns, TiledProducts, all_mine


class Mixed(NamedTuple):
    """The inputs that a layer keeps of a batch's tokens until they are mixed."""

    query: Tensor
    """The queries of attention, rotated [T, heads, D]; of a recurrence what the tokens come to."""
    gate: Tensor | None = None
    """The gate of what they compute [T, ...]."""


class Decoder:
    """A `Forward` in the numerics of Transformers: norms in float32, the rest in `dtype`."""

    def __init__(
        self,
        config: ModelConfig,
        weights: Weights,
        attention: Attention,
        shard: Shard | None = None,
        gather: GatherColumns = all_mine,
        host: ModelConfig | None = None,
        tile: int | None = None,
    ) -> None:
        """The weights of a `shard` are those that a rank has, and pages those of its layers.

        A model that keeps nothing reads pages of its `host`, to which layers' `kv_from` refer. Sums
        are computed for `tile` tokens at a time, 0 for all; without one a CPU's products alone.
        """
        self.config = config
        self.shard = shard or whole(config)
        self.gather = gather
        self.weights = weights
        self.attention, self.tile = attention, tile
        self.graph = config.graph
        self.kinds = [config.kind(index) for index in self.shard.layers]
        self.scorings = [
            Scoring(self.graph.attention_scale, self.graph.attention_softcap, kind.window)
            for kind in self.kinds
        ]
        self.planes = config.layer_planes(self.shard.layers, host)
        """The planes of the pages, by layer."""
        self.heads = [config.key_heads(index) for index in self.shard.layers]
        """The heads of keys, by layer."""
        self.linear = TiledProducts(TILE if tile is None else tile)
        self.norm = Norms(config, tile or 0)
        self.rotaries = Rotaries(config, weights.embedding.device)
        self.feed = FeedForward(config, self.linear, gather, self.norm)
        self.inputs = LayerEmbedder(config, self.linear, self.norm)

    def __call__(self, batch: Batch, pages: Pages) -> Tensor:
        """Write the batch's K and V into the pages, return float32 logits [S, vocab]."""
        return self.run_stage(batch, pages, None)

    @torch.inference_mode()
    def run_stage(self, batch: Batch, pages: Pages, hidden: Tensor | None) -> Tensor:
        """Return the logits, or before the last stage what the layers have come to [T, hidden].

        `hidden` is what the stage before has come to; without one the tokens are embedded.
        """
        rotations = self.rotaries.at(batch.positions, self.weights.embedding.dtype)
        if hidden is None:
            hidden = self.inputs.embedded(self.weights.embedding, batch.tokens)
        inputs = self.inputs.of(self.weights, batch.tokens, hidden)
        layers = self.weights.layers[: batch.layers]
        # Before the last stage every layer has all tokens: a later one goes on with them.
        last_full_layer = self._last_kept(len(layers)) if self.shard.is_last else len(layers)
        for index, layer in enumerate(layers):
            self.enter_layer(index, hidden, batch, index > last_full_layer)
            hidden = self._layer(index, hidden, rotations, batch, pages, last_full_layer)
            layer_input = inputs[index] if index < last_full_layer else inputs[index][batch.outputs]
            hidden = self.inputs.added(layer, hidden, layer_input)
            hidden = self.leave_layer(index, hidden, batch)
        return self.read_out(hidden, batch) if self.shard.is_last else hidden

    def enter_layer(self, index: int, hidden: Tensor, batch: Batch, is_few: bool) -> None:
        """Take in what a layer begins with: of all tokens [T], or `is_few` of the outputs [S]."""

    def leave_layer(self, index: int, hidden: Tensor, batch: Batch) -> Tensor:
        """Return what the next layer begins with."""
        return hidden

    def read_out(self, hidden: Tensor, batch: Batch) -> Tensor:
        """Return the logits of what the last layer comes to [S, hidden]."""
        return self.logits(self.norm(hidden, self.weights.norm))

    def logits(self, normed: Tensor) -> Tensor:
        """Return float32 logits [S, vocab]."""
        logits = self.gather(self.linear(normed, self.weights.lm_head, None), "vocab").float()
        if self.graph.logit_scale != 1.0:
            logits = logits * self.graph.logit_scale
        cap = self.graph.logit_softcap
        return (logits / cap).tanh() * cap if cap else logits

    def _layer(
        self,
        index: int,
        hidden: Tensor,
        rotations: list[Rotation],
        batch: Batch,
        pages: Pages,
        last_full_layer: int,
    ) -> Tensor:
        """Run a layer: up to `last_full_layer` for all tokens [T], behind it for those with logits
        [S].

        That one keeps the keys and values of all; nothing reads what the others would come to.
        """
        layer, outputs = self.weights.layers[index], batch.outputs
        # Most tokens of a prompt are computed for their keys and values alone: behind the last
        # layer that keeps some, only those with outputs go on.
        output_tokens = outputs if index > last_full_layer else None
        if output_tokens is not None and not len(output_tokens):
            return hidden
        adapt = self.adapt(index, batch, output_tokens)
        normed = self.norm(hidden, layer.attention_norm)
        if output_tokens is not None:
            rotations = [(cos[output_tokens], sin[output_tokens]) for cos, sin in rotations]
        kept = self.keep(layer, index, normed, rotations, batch, pages, adapt)
        if output_tokens is not None:
            # Attention wants a query for each token of the batch; those left out are not read.
            every = kept.query.new_zeros(len(batch.tokens), *kept.query.shape[1:])
            every[output_tokens] = kept.query
            kept = Mixed(every)
        if index == last_full_layer:
            if not len(outputs):
                return hidden[:0]
            hidden, normed = hidden[outputs], normed[outputs]
            adapt = self.adapt(index, batch, outputs)
        attended = self.mix(layer, kept, index, batch, pages)
        attended = attended if index < last_full_layer else attended[outputs]
        return self._finish(layer, hidden, normed, attended, adapt)

    def adapt(self, index: int, batch: Batch, tokens: Tensor | None) -> Adapt:
        """Return what changes a layer's products, of all tokens or of some."""
        return unadapted

    def _last_kept(self, count: int) -> int:
        """Return the last of so many layers that has keys and values of its own."""
        return max((index for index in range(count) if self.kinds[index].kv_from < 0), default=0)

    def _finish(
        self, layer: LayerWeights, hidden: Tensor, normed: Tensor, attended: Tensor, adapt: Adapt
    ) -> Tensor:
        """Add what attention and the FFN come to."""
        mixed = self._project(layer, attended, adapt)
        hidden = self._add(hidden, mixed, layer.after_attention)
        # Parallel families give the FFN what attention has read.
        if not self.graph.is_parallel:
            normed = self.norm(hidden, layer.ffn_norm)
        return self._add(hidden, self.feed(layer, hidden, normed, adapt), layer.after_ffn)

    def _add(self, hidden: Tensor, added: Tensor, norm: Tensor | None) -> Tensor:
        added = self.norm(added, norm)
        if self.graph.residual_multiplier != 1.0:
            added = added * self.graph.residual_multiplier
        return hidden + added

    def keep(
        self,
        layer: LayerWeights,
        index: int,
        normed: Tensor,
        rotations: list[Rotation],
        batch: Batch,
        pages: Pages,
        adapt: Adapt,
    ) -> Mixed:
        """Write keys and values into the pages; return the rotated queries [T, heads, D]."""
        kind = self.kinds[index]
        heads, size = len(self.shard.heads), self.heads[index].size
        kv_heads = kind.kv_heads or len(self.shard.kv_heads)
        qkv = adapt("qkv", normed, self.linear(normed, layer.qkv, layer.qkv_bias))
        gate = None
        if self.graph.has_output_gate:
            width = heads * size
            qkv, gate = qkv.split([qkv.shape[1] - width, width], dim=1)
        by_head = qkv.unflatten(1, (-1, size))
        query, key = by_head[:, :heads], by_head[:, heads : heads + kv_heads]
        # The key as it was projected: its norm and its rotation come later, and are not
        # the value's.
        value = key if kind.keys_are_values else by_head[:, heads + kv_heads :]
        if self.graph.has_value_norm:
            value = self.norm(value, layer.value_norm)
        turn = rotations[kind.rotary] if kind.rotary >= 0 else None
        query = self._rotated(query, layer.query_norm, turn)
        key = self._rotated(key, layer.key_norm, turn)
        # The others attend to the pages of an earlier layer, and write none.
        if kind.kv_from < 0:
            keys, values = self.pages_of(index, pages)
            slots = self.batch_of(index, batch, pages).slots
            write(keys.flatten(0, 1), slots, key)
            write(values.flatten(0, 1), slots, value)
        return Mixed(self.rotaries.scaled_by_position(query, batch.positions), gate)

    def pages_of(self, index: int, pages: Pages) -> tuple[Tensor, Tensor]:
        """Return a layer's keys and values, of this rank's heads."""
        return self.own_heads(index, pages, self.planes[index].planes.start)

    def own_heads(self, index: int, pages: Pages, plane: int) -> tuple[Tensor, Tensor]:
        """Return the keys and values of a layer that are in a plane, of this rank's heads."""
        keys, values = (
            heads_in(part, self.heads[index]) for part in (pages.keys[plane], pages.values[plane])
        )
        if self.kinds[index].kv_heads:
            return keys, values
        own_heads = slice(self.shard.kv_heads.start, self.shard.kv_heads.stop)
        return keys[:, :, own_heads], values[:, :, own_heads]

    def batch_of(self, index: int, batch: Batch, pages: Pages) -> Batch:
        """Return the batch with a layer's slots and block tables."""
        return batch

    def mix(
        self, layer: LayerWeights, kept: Mixed, index: int, batch: Batch, pages: Pages
    ) -> Tensor:
        """Return what each token comes to by those that it sees, before the last product."""
        attended = self._attend(layer, kept.query, index, batch, pages)
        return attended if kept.gate is None else attended.flatten(1) * kept.gate.sigmoid()

    def _attend(
        self, layer: LayerWeights, query: Tensor, index: int, batch: Batch, pages: Pages
    ) -> Tensor:
        keys, values = self.pages_of(index, pages)
        batch = self.batch_of(index, batch, pages)
        scoring = self.scorings[index]
        if self.graph.has_sinks:
            scoring = scoring._replace(sinks=layer.sinks)
        elif scoring == PLAIN:
            return self.attention(query, keys, values, batch)
        return cast(ScoredAttention, self.attention)(query, keys, values, batch, scoring)

    def _rotated(self, heads: Tensor, norm: Tensor | None, turn: Rotation | None) -> Tensor:
        """Return queries or keys with their norm and their rotation, in the family's order."""
        if not self.graph.norms_after_rotation:
            heads = self.norm.of_heads(heads, norm)
        if turn is not None:
            heads = self.rotaries.rotated(heads, turn)
        return self.norm.of_heads(heads, norm) if self.graph.norms_after_rotation else heads

    def _project(self, layer: LayerWeights, attended: Tensor, adapt: Adapt) -> Tensor:
        attended = self.gather(attended.flatten(1), "attended")
        output = adapt("output", attended, self.linear(attended, layer.output, layer.output_bias))
        return self.gather(output, "hidden")
