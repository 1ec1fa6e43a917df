"""What models take of the memory: refused with what would fit, or read from a file."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from draftwerk.assembly import memory_room
from draftwerk.assembly.memory_room import FILE_SHARE, auto_kv_bytes, loading_bytes
from draftwerk.settings.engine_settings import EngineSettings
from draftwerk.settings.setting_fields import ConfigError
from tests.api.shared.test_config import TinyCard

GB = 10**9
WINDOW = 64 * 2**20


class Card(TinyCard):
    """A model that is packed layer by layer."""

    def packed_bytes(self, dtype: str) -> int:
        return self.loading - WINDOW


CARD = Card(vocab_size=9, kv_heads_per_token=2, head_size=8, loading=20 * GB)


def settings(**fields: Any) -> EngineSettings:
    return EngineSettings(device="cpu", **fields)


def test_a_model_that_does_not_fit_is_refused_with_the_setting_that_serves_it() -> None:
    said = "20.0 GB of memory .* a smaller one would fit, or --weight-store DIR"
    with pytest.raises(ConfigError, match=said):
        loading_bytes(settings(), CARD, "stored", 16 * GB)
    assert loading_bytes(settings(), CARD, "stored", 21 * GB) == 20 * GB


def test_the_setting_is_not_named_where_it_is_refused() -> None:
    for given in (settings(backend="transformers"), settings(tensor_parallel=2)):
        with pytest.raises(ConfigError, match=r"would fit$"):
            loading_bytes(given, CARD, "stored", 16 * GB)


def test_weights_in_a_file_leave_memory_for_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_room, "disk_usage", lambda _: SimpleNamespace(free=30 * GB))
    given = settings(weight_store=str(tmp_path))
    loading = loading_bytes(given, CARD, "stored", 10 * GB)
    assert loading == WINDOW + int(FILE_SHARE * 10 * GB)
    assert auto_kv_bytes(10 * GB, loading, GB) > GB
    fits = loading_bytes(given, CARD, "stored", 100 * GB)
    assert fits == loading_bytes(settings(), CARD, "stored", 100 * GB) == 20 * GB


@pytest.mark.parametrize(
    ("fields", "card", "said"),
    [
        ({}, CARD, "has room for 1.0 GB, and tiny takes 19.9 GB packed"),
        ({}, TinyCard(9, 2, 8, loading=0), "tiny is all in memory while it is packed"),
        ({"backend": "transformers"}, CARD, "the native kernels of a CPU alone"),
        ({"pipeline_parallel": 2}, CARD, "leave out --pipeline-parallel"),
    ],
)
def test_where_weights_cannot_lie_in_a_file_is_told(
    fields: dict[str, Any],
    card: TinyCard,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory_room, "disk_usage", lambda _: SimpleNamespace(free=GB))
    with pytest.raises(ConfigError, match=f"weight_store: .*{said}"):
        loading_bytes(settings(weight_store=str(tmp_path), **fields), card, "stored", 10 * GB)


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    given = settings(weight_store=str(tmp_path / "none"))
    with pytest.raises(ConfigError, match=r"weight_store: .*none cannot be used: No such file"):
        loading_bytes(given, CARD, "stored", 10 * GB)


def test_a_gpu_that_is_not_there_is_told() -> None:
    with pytest.raises(ConfigError, match="nvidia-smi finds no GPU"):
        auto_kv_bytes(0, 2**20, 2**20)
