"""What a second tier at other servers cannot be had with is refused by name."""

import gc
import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from draftwerk.actors.tier_two.peer_door import listen, port_of
from draftwerk.assembly.model_processes import ModelMemory
from draftwerk.assembly.second_tier import SecondTier, second_tier
from draftwerk.cache.pages.page_layout import PageLayout
from draftwerk.machine.shared_memory import SharedMemory
from draftwerk.settings.engine_checks import check_engine
from draftwerk.settings.engine_settings import EngineSettings
from draftwerk.settings.setting_fields import ConfigError
from draftwerk.speculative.protocol.frames import Ready

LAYOUT = PageLayout(planes=2, block_count=3, unit_bytes=64)
READY = {"device": "cpu", "attention": "", "exact": True, "fingerprint": "ab" * 32}


async def opened(ready: dict[str, Any], **settings: Any) -> SecondTier | None:
    """Return what is opened over pages of a few blocks."""
    memory = ModelMemory(SharedMemory.make(4096), SharedMemory.make(LAYOUT.page_bytes + 256))
    found = Ready(**{**READY, "pages": LAYOUT, **ready})
    try:
        return await second_tier(EngineSettings(**settings), found, memory)
    finally:
        for each in (memory.weights, memory.pages):
            assert each is not None
            each.close()


@pytest.fixture
def key(tmp_path: Path) -> str:
    path = tmp_path / "key"
    path.write_bytes(b"s" * 32)
    return str(path)


def test_without_settings_there_is_none() -> None:
    assert anyio.run(opened, {}) is None


@pytest.mark.parametrize(
    ("ready", "said"),
    [({"states": (4, 64)}, "kv_peers: recurrent"), ({"fingerprint": ""}, "kv_peers: .*CPU")],
)
def test_a_model_that_has_no_blocks_to_hand_over_is_refused(
    key: str, ready: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        anyio.run(partial(opened, ready, kv_peers=("127.0.0.1:9",), kv_key=key))


def open_files() -> int:
    gc.collect()  # other tests' are closed as their objects go
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.skipif(sys.platform != "linux", reason="there is no list of open files")
def test_what_is_closed_has_no_page_any_more(tmp_path: Path) -> None:
    before = open_files()
    tier = anyio.run(partial(opened, {"states": (4, 64)}, kv_store=str(tmp_path)))
    assert tier is not None and tier.state_store is not None
    assert open_files() == before + 2
    tier.close()
    assert open_files() == before


def test_a_folder_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="kv_store"):
        anyio.run(partial(opened, {}, kv_store=str(tmp_path / "file")))


def test_a_key_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "short").write_bytes(b"s")
    for name in ("short", "none"):
        with pytest.raises(ConfigError, match="kv_key: .*" + name):
            anyio.run(partial(opened, {}, kv_peers=("a:9",), kv_key=str(tmp_path / name)))


def test_a_port_that_is_taken_is_refused(key: str) -> None:
    async def both() -> None:
        async with await listen("127.0.0.1", 0) as taken:
            with pytest.raises(ConfigError, match="kv_listen"):
                await opened({}, kv_listen=f"127.0.0.1:{port_of(taken)}", kv_key=key)

    anyio.run(both)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"kv_peers": ("host",), "kv_key": "f"}, "kv_peers: 'host'"),
        ({"kv_listen": "127.0.0.1:x", "kv_key": "f"}, "kv_listen: '127.0.0.1:x'"),
        ({"kv_listen": "127.0.0.1:9"}, "kv_listen: .*--kv-key"),
        ({"kv_peers": ("a:9",), "kv_key": "f", "kv_store": "d"}, "kv_peers: .*kv_store"),
        ({"kv_peers": ("a:9",), "kv_key": "f", "device": "cuda"}, "kv_peers: a GPU"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        check_engine(EngineSettings(**settings))
