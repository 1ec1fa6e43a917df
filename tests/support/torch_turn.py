"""What brings a segment's slots to another place in plain torch: the twin of `NativeTurn`."""

from collections.abc import Sequence

import torch

from draftwerk.model.batch.batch import Pages
from draftwerk.model.reference.kv_pages import move_slots


class TorchTurn:
    """Copies slots to other positions: rotated in float32 by the difference, and rounded once."""

    def __init__(self, inverse_frequencies: Sequence[float]) -> None:
        self._frequencies = torch.tensor(inverse_frequencies, dtype=torch.float32)

    def __call__(
        self, pages: Pages, sources: Sequence[int], targets: Sequence[int], turn: int
    ) -> None:
        """Copy slots in all layers, their keys rotated by `turn` positions."""
        move_slots(pages, list(zip(sources, targets, strict=True)))
        if not turn or not len(targets):
            return
        angles = (turn * self._frequencies).double()
        cos, sin = angles.cos().float(), angles.sin().float()
        flat = pages.keys.view(pages.keys.shape[0], -1, *pages.keys.shape[3:])
        first, second = flat[:, list(targets)].float().chunk(2, dim=-1)
        rotated = torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
        flat[:, list(targets)] = rotated.to(flat.dtype)
