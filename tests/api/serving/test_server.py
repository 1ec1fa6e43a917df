"""The process that serves: what it may open."""

import logging

import pytest

from draftwerk.api.core.config import Settings
from draftwerk.api.serving import server


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
