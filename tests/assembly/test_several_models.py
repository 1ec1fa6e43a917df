"""What models take of memory, and which of them can be served together."""

from pathlib import Path
from typing import Any

import pytest

from draftwerk.api.shared.config import Settings, load
from draftwerk.assembly.model_entries import model_entries
from draftwerk.assembly.several_models import (
    PROCESS_BYTES,
    LoadableModel,
    check_listed,
    listed_of,
    memory_for_models,
)
from draftwerk.model.checkpoint.hf_config import read_config
from draftwerk.settings.setting_fields import ConfigError, bytes_of
from tests.support.mtp_models import MtpOracle
from tests.support.tiny_adapters import save_adapter
from tests.support.tiny_models import copy_text, save_tiny_with_text, text_sizes

ROOM = 2 * 2**30


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a tiny model's folder."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    save_tiny_with_text(folder)
    return folder


def listed(tiny: Path, room: int = ROOM, **fields: Any) -> LoadableModel:
    """Return the model with these settings."""
    chosen = load({"model": str(tiny), "keep_alive": "5m", "device": "cpu", **fields}, {})
    (entry,) = model_entries(chosen)
    return listed_of(entry, room, lambda _: None)


def test_a_model_takes_its_weights_its_cache_and_its_processes(tiny: Path) -> None:
    one = listed(tiny, kv_memory="64MiB")
    assert one.memory_bytes == one.info.loading_bytes("bf16") + 64 * 2**20 + PROCESS_BYTES
    two = listed(tiny, kv_memory="64MiB", spare="on")
    assert two.memory_bytes == one.memory_bytes + PROCESS_BYTES


def test_what_drafts_is_counted_and_states_need_no_least_cache(tmp_path: Path) -> None:
    MtpOracle(tmp_path, "qwen3_5_text", **text_sizes())
    copy_text(tmp_path)
    plain, drafted = (listed(tmp_path, draft_head=head) for head in ("off", "mtp"))
    assert drafted.info.draft_head_bytes > 0 == plain.info.draft_head_bytes
    assert bytes_of(plain.settings.kv_memory) == bytes_of(drafted.settings.kv_memory)
    assert drafted.memory_bytes == plain.memory_bytes + drafted.info.draft_head_bytes


def test_what_is_listed_is_known_without_loading(tiny: Path) -> None:
    card = listed(tiny, kv_memory="64KiB").card
    assert (card.name, card.family, card.dtype) == ("tiny", "llama", "bf16")
    assert 0 < card.context_max < 2048, "as far as the cache holds"
    assert card.fingerprint == "" and card.created > 0


def test_adapters_are_listed_and_take_memory_before_loading(tiny: Path, tmp_path: Path) -> None:
    rows = tmp_path / "models.toml"
    folder = save_adapter(tmp_path / "a", read_config(tiny))
    rows.write_text(f'[[model]]\nname = "m"\npath = "{tiny}"\nlora = ["poet={folder}"]\n')
    chosen = load({"models": str(rows), "device": "cpu", "kv_memory": "1MiB"}, {})
    (entry,) = model_entries(chosen)
    found = listed_of(entry, ROOM, lambda _: None)
    assert found.card.names == ("m", "m:poet")
    assert found.memory_bytes > listed(tiny, kv_memory="1MiB").memory_bytes


def test_a_cache_of_its_own_size_leaves_room_for_a_second_model(tiny: Path) -> None:
    fixed = listed(tiny, kv_memory="1MiB").memory_bytes - 2**20
    all_rows = bytes_of(listed(tiny).settings.kv_memory)
    for room in (ROOM, 2 * fixed + 2**28, fixed + 2**27):  # half of the last would be too little
        one = listed(tiny, room)
        assert 2**20 < bytes_of(one.settings.kv_memory) <= all_rows
        assert one.memory_bytes <= (room // 2 if room > fixed + 2**27 else room)


def test_a_model_that_cannot_ever_be_loaded_is_refused(tiny: Path) -> None:
    with pytest.raises(ConfigError, match=r"memory_max: tiny takes .* are for models"):
        listed(tiny, ROOM, kv_memory="3GiB")


def test_models_must_be_told_apart(tiny: Path) -> None:
    one = listed(tiny)
    with pytest.raises(ConfigError, match="two models are called tiny"):
        check_listed([one, one], ROOM)
    with pytest.raises(ConfigError, match="none that can be served"):
        check_listed([], ROOM)


def test_the_room_is_what_the_limit_leaves() -> None:
    assert 0 < memory_for_models(Settings(memory_max="4GiB")) < 0.9 * 4 * 2**30
    assert memory_for_models(Settings()) > 0
    with pytest.raises(ConfigError, match="memory_max: 64 MiB hold no model"):
        memory_for_models(Settings(memory_max="64MiB"))
