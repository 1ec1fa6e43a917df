"""Rotary positions of queries and keys."""

import torch
from torch import Tensor

from draftwerk.model.checkpoint.config import ModelConfig

Rotation = tuple[Tensor, Tensor]
"""Cosines and sines."""


class Rotaries:
    """The rotaries of a model, which its layers name by number."""

    def __init__(self, config: ModelConfig, device: torch.device) -> None:
        self._rotaries = config.rotaries
        self._graph = config.graph
        self._rounding = config.graph.rotary_rounding
        self._frequencies = [
            torch.tensor(each.inverse_frequencies, device=device) for each in config.rotaries
        ]

    def at(self, positions: Tensor, dtype: torch.dtype) -> list[Rotation]:
        """Return cos and sin [T, 1, pairs] of each rotary, of weights of a dtype."""
        if self._rounding == "result":
            dtype = torch.float32
        found: list[Rotation] = []
        for rotary, frequencies in zip(self._rotaries, self._frequencies, strict=True):
            angles = (positions.view(len(positions), -1).float() * frequencies)[:, None]
            cos, sin = angles.cos() * rotary.magnitude, angles.sin() * rotary.magnitude
            found.append((cos.to(dtype), sin.to(dtype)))
        return found

    def rotated(self, heads: Tensor, rotation: Rotation) -> Tensor:
        """Rotate the first dimensions of [T, heads, D]."""
        size = 2 * rotation[0].shape[-1]
        turning = heads[..., :size]
        if self._rounding != "all":
            turning = turning.float()
        first = rotated(turning, rotation).to(heads.dtype)
        return first if size == heads.shape[-1] else torch.cat([first, heads[..., size:]], -1)

    def scaled_by_position(self, queries: Tensor, positions: Tensor) -> Tensor:
        """Return queries [T, heads, D] times what a family has for far positions."""
        if not self._graph.temperature_beta:
            return queries
        turns = (positions / self._graph.temperature_length).floor()
        heat = 1 + self._graph.temperature_beta * torch.log1p(turns)
        return queries * heat[:, None, None].to(queries.dtype)


def rotated(values: Tensor, rotation: Rotation) -> Tensor:
    """Rotate dimension i with dimension i + D / 2 of [T, heads, D]."""
    cos, sin = rotation
    first, second = values.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
