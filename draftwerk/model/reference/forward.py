"""The decoder of every family in plain torch, with what options need of it.

It is the twin the fast kernels are compared with, and what runs where they cannot.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from draftwerk.model.attention.signature import Attention
from draftwerk.model.batch.batch import Batch, Pages
from draftwerk.model.batch.batch_state import BatchState
from draftwerk.model.checkpoint.config import ModelConfig
from draftwerk.model.checkpoint.lora.lora_weights import Adapter
from draftwerk.model.checkpoint.shard import Shard
from draftwerk.model.checkpoint.weights import LayerWeights, Weights
from draftwerk.model.reference.adapters import Adapt, TorchAdapters
from draftwerk.model.reference.convolution import ConvSlots, convolved, store_inputs
from draftwerk.model.reference.decoder import Decoder, Mixed
from draftwerk.model.reference.recurrence import RecurrentLayers
from draftwerk.model.reference.rotation import Rotation
from draftwerk.model.reference.tiled_products import GatherColumns, all_mine


class TorchForward(Decoder):
    """A decoder with recurrences, convolutions, windows, adapters, and states for a draft head."""

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
        """The arguments are those of `Decoder`."""
        super().__init__(config, weights, attention, shard, gather, host, tile)
        self.mixers = [kind.mixer for kind in self.kinds]
        self.recurrent = config.recurrence and RecurrentLayers(config.recurrence, tile or 0)
        self.conv_slots = ConvSlots(config.kernel_size)
        self.states: Tensor | None = None
        """The states that the head read in the latest call, [S, hidden] in any dtype."""
        self.kept_layers: tuple[int, ...] = ()
        self.kept: Tensor | None = None
        self._kept: list[Tensor] = []
        self.adapters = TorchAdapters(self.linear)

    def add_adapter(self, adapter: Adapter) -> None:
        """Add an adapter behind those there are; batches name it by its number."""
        embedding = self.weights.embedding
        self.adapters.add(adapter, embedding.device, embedding.dtype)

    def advance(self, rows: Sequence[tuple[BatchState, Sequence[int]]], pages: Pages) -> None:
        """Take states of the latest batch along the nodes that were accepted."""
        if self.recurrent is not None and pages.states is not None:
            self.recurrent.advance(rows, pages.states)

    def enter_layer(self, index: int, hidden: Tensor, batch: Batch, is_few: bool) -> None:
        if index == 0:
            self._kept.clear()
        if index in self.kept_layers:
            self._kept.append(hidden if is_few else hidden[batch.outputs])

    def leave_layer(self, index: int, hidden: Tensor, batch: Batch) -> Tensor:
        return hidden if batch.added is None else batch.added.behind(index, hidden)

    def read_out(self, hidden: Tensor, batch: Batch) -> Tensor:
        self.kept = torch.cat(self._kept, -1) if self._kept else None
        self.states = self.norm(hidden, self.weights.norm)
        # The outputs behind them are read by draft heads and pooling, which need no logits.
        return self.logits(self.states[: batch.logit_count])

    def adapt(self, index: int, batch: Batch, tokens: Tensor | None) -> Adapt:
        return self.adapters.of_layer(index, batch, tokens)

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
        """Write a convolution's inputs, and return the gates of its outputs; scan a recurrence."""
        if self.mixers[index] == "recurrence":
            return Mixed(self._scan(layer, index, normed, batch, pages))
        if self.mixers[index] == "convolution":
            gate, query, value = self.linear(normed, layer.qkv, layer.qkv_bias).chunk(3, dim=1)
            store_inputs(gate * value, pages, self.planes[index].planes, batch.slots)
            return Mixed(query)
        return super().keep(layer, index, normed, rotations, batch, pages, adapt)

    def mix(
        self, layer: LayerWeights, kept: Mixed, index: int, batch: Batch, pages: Pages
    ) -> Tensor:
        if self.mixers[index] == "recurrence":
            return kept.query
        if self.mixers[index] == "convolution":
            assert layer.taps is not None
            slots, planes = self.conv_slots(batch, pages.block_size), self.planes[index].planes
            return kept.query * convolved(layer.taps, pages, planes, slots, kept.query.dtype)
        return super().mix(layer, kept, index, batch, pages)

    def _scan(
        self, layer: LayerWeights, index: int, normed: Tensor, batch: Batch, pages: Pages
    ) -> Tensor:
        """Return what tokens come to by a recurrence; their states are written."""
        assert self.recurrent is not None and layer.taps is not None and layer.recurrent is not None
        number = self.mixers[:index].count("recurrence")
        inputs = self.linear(normed, layer.qkv, layer.qkv_bias)
        operands = layer.taps, layer.recurrent, inputs, batch.states, pages.states
        return self.recurrent.mix(number, *operands, self.config.norm_eps)

    def batch_of(self, index: int, batch: Batch, pages: Pages) -> Batch:
        if pages.window is None or not self.kinds[index].is_windowed:
            return batch
        assert batch.window is not None, "a batch without tables of its windows"
        return batch.window

    def pages_of(self, index: int, pages: Pages) -> tuple[Tensor, Tensor]:
        if pages.window is None:
            return super().pages_of(index, pages)
        own = pages.window if self.kinds[index].is_windowed else pages
        return self.own_heads(index, own, self.planes[index].in_group)
