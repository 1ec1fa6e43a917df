"""The adapters that a model process is told of, read again and held against what they were."""

from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from draftwerk.model.checkpoint.config import ModelConfig
from draftwerk.model.checkpoint.hub import cache_directory
from draftwerk.model.checkpoint.lora.lora_card import LoraCard, read_lora
from draftwerk.model.checkpoint.lora.lora_weights import Adapter, load_lora
from draftwerk.model.checkpoint.model_options import LoraFolder
from draftwerk.model.checkpoint.unsupported import Refused


class TakesAdapters(Protocol):
    """A forward pass whose rows may have adapters."""

    def add_adapter(self, adapter: Adapter, /) -> None: ...


def lora_cards(folders: Iterable[LoraFolder], config: ModelConfig) -> list[LoraCard]:
    """Return the adapters' cards. Raises Refused, too for one that was changed since."""
    cards: list[LoraCard] = []
    for folder in folders:
        card = read_lora(Path(folder.path), config, cache_directory())
        if card.digest != folder.digest:
            raise Refused(f"{folder.path}: the adapter was changed since the server was started")
        cards.append(card)
    return cards


def add_adapters(
    forward: TakesAdapters, folders: Iterable[LoraFolder], config: ModelConfig
) -> dict[str, int]:
    """Load adapters into a forward pass; returns their numbers by their digests."""
    numbers: dict[str, int] = {}
    for card in lora_cards(folders, config):
        if card.digest not in numbers:
            numbers[card.digest] = len(numbers)
            forward.add_adapter(load_lora(card, config))
    return numbers
