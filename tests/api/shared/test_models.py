"""A server's only model is always loaded, and nobody has to give it back."""

from types import SimpleNamespace
from typing import Any

from draftwerk.api.shared.models import OneModel


async def test_it_stays_and_is_ready() -> None:
    snapshot = object()
    state: Any = SimpleNamespace(engine=SimpleNamespace(snapshot=lambda: snapshot), needed=3)
    models = OneModel(state)
    assert models.states == (state,)
    release = await models.hold(state)
    assert models.described(state).is_loaded and models.described(state).requests == 3
    assert models.snapshot(state) is snapshot
    release()
    assert models.described(state).state == "ready"
