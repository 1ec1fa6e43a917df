"""The shelf with models that take a moment to load: who waits, who is told to come back."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from math import inf

import pytest

from draftwerk.shelf.refusals import LoadError, MustWaitError, ShelfClosedError
from draftwerk.shelf.shelf import ModelManager, ModelSlot
from draftwerk.shelf.shelved import Shelved
from tests.support.waiting import until

Load = Callable[[Callable[[str], None]], AbstractAsyncContextManager[str]]


def loader(name: str, load_s: float = 0.01, fault: str = "") -> Load:
    """Return what loads a model, which is its name."""

    @asynccontextmanager
    async def load(report: Callable[[str], None]) -> AsyncGenerator[str, None]:
        report("reading")
        await asyncio.sleep(load_s)
        if fault:
            raise ValueError(fault)
        yield name

    return load


def shelf_of(
    *names: str, room: int = 2, wait_max_s: float = 5.0, **loads: Load
) -> ModelManager[str]:
    """Return a shelf of models of size 1."""
    places = {
        name: ModelSlot(Shelved(name=name, size=1, load_s=0.05), loads.get(name, loader(name)), inf)
        for name in names
    }
    return ModelManager(places, room, wait_max_s, 4, time.monotonic)


async def test_a_model_is_loaded_for_the_first_request_and_stays() -> None:
    shelf = shelf_of("a")
    async with shelf.running():
        assert await asyncio.gather(shelf.hold("a"), shelf.hold("a")) == ["a", "a"]
        assert shelf.places["a"].holds == 2
        shelf.release("a")
        shelf.release("a")
        assert await shelf.hold("a") == "a"
        assert shelf.places["a"].loads == 1


async def test_an_idle_model_makes_room_and_a_held_one_does_not() -> None:
    shelf = shelf_of("a", "b", "c")
    async with shelf.running():
        await shelf.hold("a")
        await shelf.hold("b")
        shelf.release("b")
        assert await shelf.hold("c") == "c"
        assert [each.phase for each in shelf.models] == ["ready", "unloaded", "ready"]


async def test_who_would_wait_too_long_is_told_when_to_come_back_and_then_served() -> None:
    shelf = shelf_of("a", "b", room=1, wait_max_s=0.3, b=loader("b", 0.6))
    shelf.places["b"].model.load_s = 0.6
    async with shelf.running():
        with pytest.raises(MustWaitError, match="b waits to be loaded") as told:
            await shelf.hold("b")
        assert told.value.retry_s >= 1
        await asyncio.sleep(told.value.retry_s)
        assert await shelf.hold("b") == "b", "it was loaded meanwhile"


async def test_a_line_has_a_bound() -> None:
    shelf = shelf_of("a", a=loader("a", 0.2))
    async with shelf.running():
        waiting = [asyncio.create_task(shelf.hold("a")) for _ in range(4)]
        await asyncio.sleep(0.05)
        with pytest.raises(MustWaitError, match="is being loaded"):
            await shelf.hold("a")
        assert await asyncio.gather(*waiting) == ["a"] * 4


async def test_a_model_that_cannot_be_loaded_fails_its_requests_and_no_others() -> None:
    shelf = shelf_of("a", "b", a=loader("a", fault="it is broken"))
    async with shelf.running():
        with pytest.raises(LoadError, match="it is broken"):
            await shelf.hold("a")
        assert await shelf.hold("b") == "b"
        assert shelf.places["a"].fault == "it is broken"


async def test_a_closed_shelf_turns_away_who_waits_and_loads_nothing() -> None:
    shelf = shelf_of("a", "b", "c", a=loader("a", 60.0))
    async with shelf.running():
        assert await shelf.hold("c") == "c"
        waiting = [asyncio.create_task(shelf.hold(name)) for name in "aa"]
        await until(lambda: shelf.places["a"].model.phase == "loading")
        shelf.close()
        ends = await asyncio.gather(*waiting, shelf.hold("b"), return_exceptions=True)
        assert [type(end) for end in ends] == [ShelfClosedError] * 3
        assert await shelf.hold("c") == "c", "what is loaded serves to the end"
        shelf.step()
        assert shelf.places["b"].model.phase == "unloaded"
        assert not any(place.requests or place.model.waiting for place in shelf.places.values())


async def test_a_client_that_leaves_while_it_waits_holds_nothing() -> None:
    shelf = shelf_of("a", a=loader("a", 0.1))
    async with shelf.running():
        waiting = asyncio.create_task(shelf.hold("a"))
        await asyncio.sleep(0.03)
        waiting.cancel()
        await until(lambda: shelf.places["a"].model.phase == "ready")
        assert (shelf.places["a"].holds, shelf.places["a"].model.waiting) == (0, 0)


@pytest.mark.parametrize("is_asked_again", (False, True))
async def test_a_model_that_is_left_while_it_loads_goes_unless_it_is_asked_for_again(
    is_asked_again: bool,
) -> None:
    shelf = shelf_of("a", a=loader("a", 0.1))
    model = shelf.places["a"].model
    async with shelf.running():
        first = asyncio.create_task(shelf.hold("a"))
        await until(lambda: model.phase == "loading")
        assert shelf.leave("a")
        waiting = [first, *([asyncio.create_task(shelf.hold("a"))] if is_asked_again else [])]
        await asyncio.gather(*waiting)
        assert model.phase == ("ready" if is_asked_again else "leaving"), "a request has it"
        for _ in waiting:
            shelf.release("a")
        if not is_asked_again:
            await until(lambda: model.phase == "unloaded")
        assert shelf.places["a"].loads == 1


async def test_a_model_is_kept_for_as_long_as_its_last_request_said() -> None:
    shelf = shelf_of("a")
    async with shelf.running():
        await shelf.hold("a", keep_alive_s=0.0)
        await asyncio.sleep(0.15)
        assert shelf.places["a"].model.phase == "ready", "a request has it"
        shelf.release("a")
        await until(lambda: shelf.places["a"].model.phase == "unloaded")


async def test_a_pinned_model_leaves_no_place_for_another() -> None:
    shelf = shelf_of("a", "b", room=1)
    async with shelf.running():
        await shelf.hold("a", keep_alive_s=inf)
        shelf.release("a")
        with pytest.raises(MustWaitError, match="does not fit into memory beside a"):
            await shelf.hold("b")
        assert shelf.leave("a")
        assert await shelf.hold("b") == "b"


async def test_a_model_is_not_unloaded_while_it_is_busy_without_being_held() -> None:
    shelf, live = shelf_of("a"), 1
    shelf.places["a"].busy = lambda: live
    async with shelf.running():
        await shelf.hold("a")
        shelf.release("a")
        shelf.leave("a")
        await asyncio.sleep(0.25)
        assert shelf.places["a"].model.phase == "leaving"
        live = 0
        await until(lambda: shelf.places["a"].model.phase == "unloaded")


async def test_a_model_that_breaks_says_why_and_is_loaded_again_for_the_next_request() -> None:
    broken = asyncio.Event()

    @asynccontextmanager
    async def load(report: Callable[[str], None]) -> AsyncGenerator[str, None]:
        async def breaks() -> None:
            await broken.wait()
            raise ValueError("it broke")

        async with asyncio.TaskGroup() as group:
            task = group.create_task(breaks())
            yield "a"
            task.cancel()

    shelf = shelf_of("a", a=load)
    async with shelf.running():
        await shelf.hold("a")
        broken.set()
        await until(lambda: shelf.places["a"].model.phase == "unloaded")
        assert shelf.places["a"].fault == "it broke"
        broken.clear()
        shelf.release("a")
        assert await shelf.hold("a") == "a"
        assert shelf.places["a"].holds == 1


async def test_a_wanted_model_is_loaded_though_nobody_waits() -> None:
    shelf = shelf_of("a")
    async with shelf.running():
        shelf.want("a")
        await until(lambda: shelf.places["a"].model.phase == "ready")
