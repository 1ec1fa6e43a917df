"""Layers of a model run alone over whole texts, and what their matrices read."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from draftwerk.model.attention.padded import PaddedAttention
from draftwerk.model.batch.batch import Batch, Pages
from draftwerk.model.checkpoint.config import ModelConfig
from draftwerk.model.checkpoint.layer_weights import weights_of
from draftwerk.model.checkpoint.shard import whole
from draftwerk.model.checkpoint.weights import LayerWeights
from draftwerk.model.reference.feed_forward import FeedForward
from draftwerk.model.reference.forward import TorchForward
from draftwerk.model.reference.kv_pages import private_pages
from draftwerk.model.reference.tiled_products import TiledProducts, all_mine
from draftwerk_tools.quantising.calibrated_layers import LayerOutcome
from draftwerk_tools.quantising.source_tensors import SourceTensors
from draftwerk_tools.trials.whole_rows import whole_rows

BLOCK_SIZE = 16


class NotedProducts(TiledProducts):
    """Products that keep what their matrices read."""

    def __init__(self, layer: LayerWeights) -> None:
        super().__init__(tile=0)
        self.read: dict[str, Tensor] = {}
        self._parts = {id(weight): part for part, weight in _parts(layer).items()}

    def __call__(self, values: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        part = self._parts.get(id(weight))
        if part is not None and len(values):
            self.read[part] = values
        return super().__call__(values, weight, bias)


def _parts(layer: LayerWeights) -> dict[str, Tensor]:
    """Return a matrix of each part; what all tokens' experts read, their router does."""
    experts = layer.experts
    found = {"qkv": layer.qkv, "output": layer.output, "gate_up": layer.gate_up, "down": layer.down}
    if experts is not None:
        found["gate_up"] = experts.router
        found |= {f"down.{index}": each for index, each in enumerate(experts.down)}
    return {part: weight for part, weight in found.items() if weight is not None}


class LayerRuns:
    """Runs layers of a model over the same texts, in float32."""

    def __init__(self, config: ModelConfig, texts: Sequence[Sequence[int]]) -> None:
        width = -(-max(map(len, texts)) // BLOCK_SIZE)
        self._config = config
        self._batch: Batch = whole_rows(texts, [0] * len(texts), 1, width * BLOCK_SIZE, BLOCK_SIZE)
        self._blocks = width * len(texts)

    @torch.inference_mode()
    def __call__(self, layer: int, tensors: SourceTensors, hidden: Tensor | None) -> LayerOutcome:
        """Return what a layer comes to of what the one before it came to; None for the first."""
        everything = whole(self._config)
        shard = replace(
            everything,
            layers=range(layer, layer + 1),
            vocab=range(0),
            is_first=hidden is None,
            is_last=False,
        )
        weights = weights_of(tensors, self._config, shard)
        forward = TorchForward(self._config, weights, PaddedAttention(), shard)
        products = NotedProducts(weights.layers[0])
        forward.linear = products
        forward.feed = FeedForward(self._config, products, all_mine, forward.norm)
        outcome = forward.run_stage(self._batch, self._pages(layer), hidden)
        return LayerOutcome(outcome, products.read)

    def _pages(self, layer: int) -> Pages:
        config = self._config
        planes, heads = len(config.planes[layer]), config.num_kv_heads
        shape = (planes, self._blocks, BLOCK_SIZE, heads, config.head_size)
        return private_pages(shape, torch.float32)
