"""Room for large bodies: a bound over all that are held at once, given back when requests end."""

import asyncio

import pytest

from draftwerk.api.core.body_room import ROOM_FREE, BodyRoom, HeldBody
from draftwerk.api.core.config import ConfigError, load
from draftwerk.api.core.errors import ApiError
from tests.api.conftest import serving
from tests.api.support.fake_engine import FakeEngine

LARGE = {"a field of another server": "x" * (2 * ROOM_FREE + 2**19)}


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


async def test_large_bodies_that_wait_for_answers_leave_no_room_for_others() -> None:
    async with serving(engine := FakeEngine(), bodies_max="3MiB", body_max="3MiB") as served:
        waiting = asyncio.create_task(served.chat("!held", **LARGE))
        while not engine.submitted:
            await asyncio.sleep(0.001)
        refused = await served.complete(**LARGE)
        assert refused.status_code == 503 and "--bodies-max" in refused.text
        assert (await served.complete()).status_code == 200
        engine.released.set()
        assert (await waiting).status_code == 200
        assert (await served.complete(**LARGE)).status_code == 200


def test_one_body_of_the_greatest_size_must_find_room() -> None:
    with pytest.raises(ConfigError, match="bodies_max"):
        load({"body_max": "3MiB", "bodies_max": "2MiB"}, {})
