"""Adapters that become a part of the model's own matrices as these are read: W + scale * B A."""

from collections.abc import Iterable

from torch import Tensor

from draftwerk.model.checkpoint.lora.lora_card import LoraCard, LoraPair
from draftwerk.model.checkpoint.lora.lora_weights import read_matrix


class MergedAdapters:
    """The sums added to rows of a checkpoint's matrices, by their names."""

    def __init__(self, cards: Iterable[LoraCard]) -> None:
        self._pairs: dict[str, list[LoraPair]] = {}
        for card in cards:
            for pair in card.pairs:
                self._pairs.setdefault(f"{pair.name}.weight", []).append(pair)

    def __bool__(self) -> bool:
        return bool(self._pairs)

    def added(self, name: str, rows: range | None, tensor: Tensor) -> Tensor:
        """Return rows of a matrix, or all; in float32 with what adapters add, where some do."""
        pairs = self._pairs.get(name, [])
        if not pairs:
            return tensor
        found = tensor.float()
        for pair in pairs:
            b = read_matrix(pair.b)
            own = b if rows is None else b[rows.start : rows.stop]
            found = found + pair.scale * (own @ read_matrix(pair.a)).to(found.device)
        return found
