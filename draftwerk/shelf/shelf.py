"""The shelf: loads models and unloads them as `moves` decides, each in a task of its own.

    hold() ── ready ──────────────────────────────> its users, release()
       │
       └── wanted ── run(): next_move() ── a task loads it ── ready ── waiting requests hold it

What is loaded is the caller's: the shelf enters a context manager and leaves it again.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from math import ceil
from typing import Generic, TypeVar

from draftwerk.shelf.moves import (
    Move,
    check,
    expected_wait_s,
    has_place,
    may_unload,
    next_move,
)
from draftwerk.shelf.refusals import LoadError, MustWaitError, ShelfClosedError, reason_of
from draftwerk.shelf.shelved import REMEMBERED_S, Phase, Shelved

T = TypeVar("T")

TICK_S = 0.1
"""Between two looks at the models: at what is idle for too long, and at who has left."""
NO_PLACE_S = 60.0
"""When to come back for a model that has no place beside those that stay."""

log = logging.getLogger("draftwerk")


@dataclass(slots=True, eq=False)
class ModelSlot(Generic[T]):
    """A model's place on the shelf."""

    model: Shelved
    load: Callable[[Callable[[str], None]], AbstractAsyncContextManager[T]]
    """Loads it while the block lasts, and tells how far it is."""
    keep_alive_s: float
    """The time for which it is kept by default."""
    busy: Callable[[], int] = int
    """How many requests need it beside those that hold it."""
    holds: int = 0
    loaded: T | None = None
    progress: str = ""
    """The latest line of the load under way."""
    fault: str = ""
    """Why the last load failed."""
    loads: int = 0
    """How often it was loaded."""
    requests: list[asyncio.Future[None]] = field(default_factory=list[asyncio.Future[None]])
    """Requests that wait for it, in the order of their arrival."""
    unload: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None


@dataclass(slots=True, eq=False)
class ModelManager(Generic[T]):
    """A server's models; `running` looks after them."""

    places: dict[str, ModelSlot[T]]
    room: int
    """Bytes for all loaded models."""
    wait_max_s: float
    """A longer expected wait is refused at once."""
    waiting_max: int
    """Requests that may wait for one model."""
    clock: Callable[[], float]
    on_loaded: Callable[[str, T], None] = lambda _, __: None
    on_unloaded: Callable[[str], None] = lambda _: None
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    closed: bool = False
    """Whether no model is loaded any more."""

    @property
    def models(self) -> list[Shelved]:
        """Every model, in the order in which they are listed."""
        return [place.model for place in self.places.values()]

    async def hold(self, name: str, keep_alive_s: float | None = None) -> T:
        """Return a model, loaded first if it must be; it stays until `release`.

        `keep_alive_s` is for how long it stays when the last request has gone; infinity pins it.
        Raises MustWaitError, LoadError and ShelfClosedError.
        """
        place = self.places[name]
        self.keep(name, keep_alive_s)
        if place.model.phase != "ready":
            await self._until_ready(place)
        else:
            self._begin(place)
        assert place.loaded is not None
        return place.loaded

    def release(self, name: str) -> None:
        """Give back what `hold` gave."""
        place = self.places[name]
        place.holds -= 1
        self._count(place)
        place.model.used_s = self.clock()
        self.changed.set()

    def keep(self, name: str, keep_alive_s: float | None) -> None:
        """Say for how long a model stays without requests; None is the default."""
        place = self.places[name]
        seconds = place.keep_alive_s if keep_alive_s is None else keep_alive_s
        place.model.keep_alive_s = seconds
        place.model.is_kept = keep_alive_s is not None and seconds == float("inf")

    def want(self, name: str) -> None:
        """Have a model loaded, though nobody waits for it. Raises MustWaitError."""
        place = self.places[name]
        self._check_place(place)
        if place.model.phase != "ready":
            place.model.want(self.clock(), REMEMBERED_S + self.expected_wait_s(name))
            self.changed.set()

    def leave(self, name: str) -> bool:
        """Have a model unloaded once no request needs it; returns whether it was loaded."""
        model = self.places[name].model
        model.is_kept, model.wanted_until_s = False, 0.0
        if model.phase == "ready":
            self._enter(self.places[name], "leaving")
        model.is_left = model.phase == "loading"
        return model.phase in ("leaving", "loading")

    def expected_wait_s(self, name: str) -> float:
        """Return how long a request for a model will probably wait."""
        return expected_wait_s(self.places[name].model, self.models, self.room, self.clock())

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None, None]:
        """Look after the models while the block lasts; all are unloaded at its end."""
        watch = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)
            self.close()
            tasks = [place.task for place in self.places.values() if place.task is not None]
            for place in self.places.values():
                place.unload.set()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _watch(self) -> None:
        """Do what is to be done, whenever something has changed or time has passed."""
        while True:
            self.step()
            self.changed.clear()
            try:
                async with asyncio.timeout(TICK_S):
                    await self.changed.wait()
            except TimeoutError:
                pass

    def step(self) -> None:
        """Make every move that is due."""
        for place in self.places.values():
            self._count(place)
            if may_unload(place.model):
                place.unload.set()
        while not self.closed and (move := next_move(self.models, self.room, self.clock())):
            self._make(move)
        check(self.models, self.room)

    def close(self) -> None:
        """Load no model any more, and turn away who waits for one."""
        self.closed = True
        for place in self.places.values():
            for request in _called(place):
                request.set_exception(ShelfClosedError())

    def _make(self, move: Move) -> None:
        place = self.places[move.name]
        self._enter(place, move.phase)
        if move.phase == "loading":
            place.unload.clear()
            place.progress, place.fault = "starting", ""
            place.task = asyncio.create_task(self._live(place))
        elif may_unload(place.model):
            place.unload.set()

    async def _live(self, place: ModelSlot[T]) -> None:
        """Load a model, let it serve until it is to go, and unload it."""
        begun = self.clock()
        log.info("model=%s loading", place.model.name)
        try:
            async with place.load(lambda line: self._report(place, line)) as loaded:
                place.model.load_s = self.clock() - begun
                log.info("model=%s loaded in %.1f s", place.model.name, place.model.load_s)
                self._ready(place, loaded)
                await place.unload.wait()
        except Exception as error:
            place.fault = reason_of(error)
            log.error("model=%s is not loaded: %s", place.model.name, place.fault)
        finally:
            self._gone(place)

    def _report(self, place: ModelSlot[T], line: str) -> None:
        place.progress = line
        log.info("model=%s %s", place.model.name, line)

    def _ready(self, place: ModelSlot[T], loaded: T) -> None:
        """Give a loaded model to those who wait for it."""
        place.loaded, place.progress = loaded, ""
        place.loads += 1
        self.on_loaded(place.model.name, loaded)
        self._enter(place, "ready")
        for request in _called(place):
            request.set_result(None)
            self._begin(place)
        if place.model.is_left:
            self._enter(place, "leaving")

    def _gone(self, place: ModelSlot[T]) -> None:
        """Note that a model is unloaded, or could not be loaded."""
        was_loaded, place.loaded, place.task = place.loaded is not None, None, None
        if was_loaded:
            self.on_unloaded(place.model.name)
            log.info("model=%s unloaded", place.model.name)
        if place.fault:
            place.model.wanted_until_s, place.model.wanted_s = 0.0, None
            for request in _called(place):
                request.set_exception(LoadError(place.fault))
        place.model.users = 0
        self._enter(place, "unloaded")

    async def _until_ready(self, place: ModelSlot[T]) -> None:
        """Wait in line until a model is loaded and held. Raises what `hold` does."""
        self._check_place(place)
        model, wait_s = place.model, self.expected_wait_s(place.model.name)
        if wait_s > self.wait_max_s or len(place.requests) >= self.waiting_max:
            self._refuse(place, wait_s)
        model.want(self.clock())
        model.waiting += 1
        request: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        place.requests.append(request)
        self.changed.set()
        try:
            async with asyncio.timeout(self.wait_max_s):
                await request
        except BaseException as error:
            if request.done() and not request.cancelled() and request.exception() is None:
                self.release(model.name)  # it was given the model at the same moment
            elif request in place.requests:
                place.requests.remove(request)
            if isinstance(error, TimeoutError):
                self._refuse(place, self.expected_wait_s(model.name))
            raise
        finally:
            model.waiting -= 1

    def _check_place(self, place: ModelSlot[T]) -> None:
        """Refuse a model that has no place beside those that stay, and any once it is closed."""
        if self.closed:
            raise ShelfClosedError
        if not has_place(place.model, self.models, self.room):
            others = ", ".join(each.name for each in self.models if each.stays)
            said = f"{place.model.name} does not fit into memory beside {others}"
            raise MustWaitError(said, NO_PLACE_S)

    def _refuse(self, place: ModelSlot[T], wait_s: float) -> None:
        """Turn a request away with the time to come back; the model stays in line until then."""
        retry_s = max(1, ceil(wait_s))
        place.model.want(self.clock(), retry_s + REMEMBERED_S)
        self.changed.set()
        words = {"loading": "is being loaded", "leaving": "is making room for another"}
        said = words.get(place.model.phase, "waits to be loaded")
        raise MustWaitError(f"{place.model.name} {said}", retry_s)

    def _begin(self, place: ModelSlot[T]) -> None:
        place.holds += 1
        place.model.used_s = self.clock()
        self._count(place)

    def _count(self, place: ModelSlot[T]) -> None:
        if place.model.phase in ("ready", "leaving"):
            place.model.users = place.holds + place.busy()

    def _enter(self, place: ModelSlot[T], phase: Phase) -> None:
        place.model.enter(phase, self.clock())
        self.changed.set()


def _called(place: ModelSlot[T]) -> list[asyncio.Future[None]]:
    """Return those that wait for a model; from now on none does."""
    waiting, place.requests = place.requests, []
    return [request for request in waiting if not request.done()]
