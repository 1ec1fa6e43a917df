"""A server's adapters: their cards, read before a model process is started for them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from draftwerk.api.shared.ports import ServedAdapter
from draftwerk.model.checkpoint.hf_config import read_config
from draftwerk.model.checkpoint.hub import cache_directory
from draftwerk.model.checkpoint.lora.lora_card import LoraCard, read_lora
from draftwerk.model.checkpoint.model_options import LoraFolder
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.settings.engine_settings import EngineSettings
from draftwerk.settings.setting_fields import ConfigError

NUMBER_BYTES = 4
"""The most bytes of an adapter's numbers, which are float32 or bf16."""


@dataclass(frozen=True, slots=True)
class LoraAdapters:
    """Adapters that fit the model."""

    named: Mapping[str, LoraCard] = field(default_factory=dict[str, LoraCard])
    merged: tuple[LoraCard, ...] = ()

    @property
    def bytes(self) -> int:
        """The bytes of them that one process has in memory."""
        return NUMBER_BYTES * sum(card.elements for card in self.named.values())

    @property
    def folders(self) -> tuple[LoraFolder, ...]:
        """Folders of those that requests name."""
        return tuple(map(_folder, self.named.values()))

    @property
    def merged_folders(self) -> tuple[LoraFolder, ...]:
        """Folders of those that are part of the weights."""
        return tuple(map(_folder, self.merged))

    @property
    def served(self) -> tuple[ServedAdapter, ...]:
        """The description of them for clients."""
        return tuple(ServedAdapter(name, card.digest) for name, card in self.named.items())


def read_adapters(settings: EngineSettings, directory: Path) -> LoraAdapters:
    """Return the settings' adapters for a model. Raises ConfigError."""
    if not (settings.lora or settings.lora_merge):
        return LoraAdapters()
    try:
        config, cache = read_config(directory), cache_directory()
        merged = (Path(each).expanduser() for each in settings.lora_merge)
        return LoraAdapters(
            {
                name: read_lora(folder, config, cache)
                for name, folder in settings.lora_folders.items()
            },
            tuple(read_lora(folder, config, cache) for folder in merged),
        )
    except Refused as error:
        raise ConfigError(f"lora: {error}") from None


def _folder(card: LoraCard) -> LoraFolder:
    return LoraFolder(path=str(card.path.absolute()), digest=card.digest)
