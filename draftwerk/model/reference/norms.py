"""Norms of hidden states, and of the heads of queries and keys."""

from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import layer_norm

from draftwerk.model.checkpoint.config import ModelConfig
from draftwerk.model.reference.tiled_products import by_tiles


class Norms:
    """A model's kind of norm, computed in float32."""

    def __init__(self, config: ModelConfig, tile: int = 0) -> None:
        """Norms are computed `tile` tokens at a time, 0 for all at once."""
        self._graph, self._eps, self.tile = config.graph, config.norm_eps, tile

    def __call__(self, values: Tensor, weight: Tensor | None) -> Tensor:
        """Return values normed over the last dimension; without weights as they are."""
        if weight is None:
            return values
        return by_tiles(partial(self._normed, weight), values, self.tile)

    def _normed(self, weight: Tensor, values: Tensor) -> Tensor:
        eps = self._eps
        wide = values.float()
        if self._graph.norm == "layer":
            size = values.shape[-1]
            own, bias = weight.float()[:size], weight.float()[size:]
            normed = layer_norm(wide, (size,), own, bias if len(bias) else None, eps)
            return normed.to(values.dtype)
        scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
        if self._graph.norm == "rms":
            return weight * (wide * scale).to(values.dtype)
        return (weight.float() * (wide * scale)).to(values.dtype)

    def of_heads(self, heads: Tensor, weight: Tensor | None) -> Tensor:
        """Norm queries or keys [T, heads, D]."""
        if weight is None or self._graph.head_norm == "shared":
            return self(heads, weight)
        if self._graph.head_norm == "each":
            own = weight.view(-1, heads.shape[-1])[: heads.shape[1]]
            each = [self(heads[:, i], one) for i, one in enumerate(own)]
            return torch.stack(each, 1)
        return self(heads.flatten(1), weight).view_as(heads)
