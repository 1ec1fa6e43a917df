"""What every test of actors shares."""

import pytest

from draftwerk.actors import idle_queue


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Audits that find no place are soon tried again."""
    monkeypatch.setattr(idle_queue, "PAUSE_S", 0.01)
