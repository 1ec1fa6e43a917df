"""The process that serves: what it may open."""

import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from draftwerk.api.app import server
from draftwerk.api.app.watchers import MEMORY_PERIOD_S, MEMORY_SHARE, memory_pause_s
from draftwerk.api.shared.config import Settings
from draftwerk.api.shared.ports import RunningServer
from draftwerk.settings.setting_fields import ConfigError


def test_connections_are_no_more_than_files_may_be_open(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(server, "open_files_up_to", lambda _: 200)
    with caplog.at_level(logging.WARNING):
        fitting = server.with_files(Settings(connections_max=1024))
    assert fitting.connections_max == 200 - server.FILES_BESIDE
    assert "200 files may be open at once (ulimit -n)" in caplog.text


def test_connections_stay_where_enough_files_may_be_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "open_files_up_to", lambda wanted: wanted)
    settings = Settings(connections_max=10)
    assert server.with_files(settings) is settings


def test_measuring_memory_takes_little_of_the_time_unless_a_limit_waits_for_it() -> None:
    assert memory_pause_s(0.05, is_limited=False) == 0.05 / MEMORY_SHARE
    assert memory_pause_s(0.001, is_limited=False) == MEMORY_PERIOD_S
    assert memory_pause_s(0.05, is_limited=True) == MEMORY_PERIOD_S


@pytest.mark.parametrize("field", ["record", "signing_key"])
async def test_a_file_that_cannot_be_opened_is_refused_before_the_models_load(
    field: str, tmp_path: Path
) -> None:
    def build(
        settings: Settings, report: Callable[[str], None]
    ) -> AbstractAsyncContextManager[RunningServer]:
        raise AssertionError("a model is loaded")

    settings = Settings(port=0, **{field: str(tmp_path / "none" / "file")})
    with pytest.raises(ConfigError, match=f"{field}: |signatures need"):
        await server.HttpServer(settings, build, server.bind(settings)).run()
