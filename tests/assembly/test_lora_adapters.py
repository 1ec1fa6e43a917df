"""A server's adapters are read, and refused, before a model process is started."""

from pathlib import Path
from typing import Any

import pytest

from draftwerk.api.shared.ports import ServedAdapter
from draftwerk.assembly.lora_adapters import LoraAdapters, read_adapters
from draftwerk.model.checkpoint.hf_config import read_config
from draftwerk.model.checkpoint.model_options import LoraFolder
from draftwerk.settings.engine_checks import check_engine
from draftwerk.settings.engine_settings import EngineSettings
from draftwerk.settings.setting_fields import ConfigError
from tests.support.tiny_adapters import save_adapter
from tests.support.tiny_models import save_tiny


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("base")
    save_tiny(directory, "llama")
    return directory


def test_cards_become_options_and_names(base: Path, tmp_path: Path) -> None:
    config = read_config(base)
    one, other = (save_adapter(tmp_path / name, config, len(name)) for name in ("a", "bc"))
    settings = EngineSettings(lora=(f"one={one}",), lora_merge=(str(other),))
    check_engine(settings)
    found = read_adapters(settings, base)
    digests = [found.named["one"].digest, found.merged[0].digest]
    assert found.folders == (LoraFolder(str(one), digests[0]),)
    assert found.merged_folders == (LoraFolder(str(other), digests[1]),)
    assert found.served == (ServedAdapter("one", digests[0]),)
    assert found.bytes == 4 * found.named["one"].elements > 10_000


def test_without_adapters_nothing_is_read(tmp_path: Path) -> None:
    assert read_adapters(EngineSettings(), tmp_path / "nowhere") == LoraAdapters()


def test_one_of_another_model_is_a_fault_of_the_settings(base: Path, tmp_path: Path) -> None:
    save_tiny(tmp_path / "wide", "llama", hidden_size=48)
    folder = save_adapter(tmp_path / "a", read_config(tmp_path / "wide"))
    with pytest.raises(ConfigError, match="is it an adapter of another model"):
        read_adapters(EngineSettings(lora=(f"one={folder}",)), base)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ({"lora": ("nothing",)}, "must be NAME=DIR"),
        ({"lora": ("a b=.",)}, "must be NAME=DIR"),
        ({"lora": ("a:b=.",)}, "must be NAME=DIR"),
        ({"lora": ("latest=.",)}, "must be NAME=DIR"),
        ({"lora": ("a=.", "a=..")}, "two adapters have one name"),
        ({"lora": ("a=/no/such",)}, "no folder /no/such"),
        ({"lora_merge": ("/no/such",)}, "no folder /no/such"),
        ({"lora": ("a=.",), "tensor_parallel": 2}, "tensor_parallel"),
        ({"lora_merge": (".",), "pipeline_parallel": 2}, "pipeline_parallel"),
    ],
)
def test_settings_that_cannot_be_are_named(words: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        check_engine(EngineSettings(**words))
