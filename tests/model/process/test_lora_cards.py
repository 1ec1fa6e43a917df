"""A model process serves the adapters that its server has read, and no others."""

from pathlib import Path

import pytest

from draftwerk.model.checkpoint.hub import cache_directory
from draftwerk.model.checkpoint.lora.lora_card import read_lora
from draftwerk.model.checkpoint.lora.lora_weights import Adapter
from draftwerk.model.checkpoint.model_options import LoraFolder
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.process.lora_cards import add_adapters
from tests.model.native.models import tiny_config
from tests.support.tiny_adapters import save_adapter

CONFIG = tiny_config()


class Taker:
    """A forward pass that notes its adapters."""

    def __init__(self) -> None:
        self.adapters: list[Adapter] = []

    def add_adapter(self, adapter: Adapter) -> None:
        self.adapters.append(adapter)


def folder_of(path: Path) -> LoraFolder:
    return LoraFolder(str(path), read_lora(path, CONFIG, cache_directory()).digest)


def test_they_are_numbered_in_their_order_and_the_same_one_is_loaded_once(tmp_path: Path) -> None:
    folders = [
        folder_of(save_adapter(tmp_path / name, CONFIG, seed))
        for name, seed in (("a", 1), ("b", 2), ("c", 1))
    ]
    forward = Taker()
    numbers = add_adapters(forward, folders, CONFIG)
    assert numbers == {folders[0].digest: 0, folders[1].digest: 1}
    assert len(forward.adapters) == 2 and len(forward.adapters[0]) == 14


def test_one_that_was_changed_since_is_refused(tmp_path: Path) -> None:
    folder = folder_of(save_adapter(tmp_path / "a", CONFIG, 1))
    save_adapter(tmp_path / "a", CONFIG, 2)
    with pytest.raises(Refused, match="was changed since the server was started"):
        add_adapters(Taker(), [folder], CONFIG)
