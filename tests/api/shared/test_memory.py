"""Bounds of memory: when the guard refuses, and how large bodies share their room."""

import asyncio
from functools import partial

import pytest

from draftwerk.api.shared.config import ConfigError, load
from draftwerk.api.shared.errors import ApiError
from draftwerk.api.shared.memory import ROOM_FREE, BodyRoom, HeldBody, HeldMessages, MemoryGuard
from tests.api.conftest import serving
from tests.api.support.fake_engine import FakeEngine
from tests.support.waiting import until

LARGE = {"a field of another server": "x" * (2 * ROOM_FREE + 2**19)}


def test_it_refuses_near_the_limit_until_memory_is_well_below_it() -> None:
    guard = MemoryGuard(1000)
    answers: list[bool] = []
    for used in (940, 950, 940, 900, 899, 940):
        guard.observe(used)
        answers.append(guard.full)
    assert answers == [False, True, True, True, False, False]


def test_without_a_limit_it_never_refuses() -> None:
    guard = MemoryGuard(0)
    guard.observe(2**50)
    assert not guard.full


def test_what_is_beyond_the_first_megabyte_counts_as_it_comes() -> None:
    room = BodyRoom(100)
    one, other = HeldBody(room), HeldBody(room)
    one.grow(ROOM_FREE)
    one.grow(ROOM_FREE + 60)
    one.grow(ROOM_FREE + 70)
    other.grow(ROOM_FREE + 30)
    assert room.taken == 100
    other.expect(ROOM_FREE + 30)
    for refused in (other.expect, other.grow, HeldBody(room).expect):
        with pytest.raises(ApiError) as error:
            refused(ROOM_FREE + 31)
        assert error.value.status == 503 and "retry-after" in error.value.headers
    HeldBody(room).grow(ROOM_FREE)
    room.check()
    one.release()
    one.release()
    assert room.taken == 30
    other.grow(ROOM_FREE + 100)


def test_a_message_gives_back_what_else_it_holds_at_its_end_and_at_its_sockets() -> None:
    given, messages = list[str](), HeldMessages(BodyRoom(100))
    for name in ("ended", "under way"):
        messages.hold(1).holds.append(partial(given.append, name))
    ended, _ = messages.under_way
    ended.release()
    ended.release()
    assert given == ["ended"]
    messages.hold(1)
    messages.release()
    assert given == ["ended", "under way"]


async def test_large_bodies_that_wait_for_answers_leave_no_room_for_others() -> None:
    async with serving(engine := FakeEngine(), bodies_max="3MiB", body_max="3MiB") as served:
        waiting = asyncio.create_task(served.chat("!held", **LARGE))
        await until(lambda: bool(engine.submitted))
        refused = await served.complete(**LARGE)
        assert refused.status_code == 503 and "--bodies-max" in refused.text
        assert (await served.complete()).status_code == 200
        engine.released.set()
        assert (await waiting).status_code == 200
        assert (await served.complete(**LARGE)).status_code == 200


def test_one_body_of_the_greatest_size_must_find_room() -> None:
    with pytest.raises(ConfigError, match="bodies_max"):
        load({"body_max": "3MiB", "bodies_max": "2MiB"}, {})
