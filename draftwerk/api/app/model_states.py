"""The states of several models over the shelf that loads and unloads them."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from math import inf
from typing import NoReturn

from draftwerk.actors.events.client_events import Event
from draftwerk.actors.monitoring.snapshot import ModelFigures, Snapshot
from draftwerk.actors.monitoring.sums import counted
from draftwerk.actors.requests.errors import OverloadedError
from draftwerk.api.shared.errors import ApiError, draining, refused
from draftwerk.api.shared.models import ModelShelving, Release
from draftwerk.api.shared.ports import RunningServer, ShelvedModels
from draftwerk.api.shared.state import ServerState
from draftwerk.shelf.refusals import LoadError, MustWaitError, ShelfClosedError
from draftwerk.shelf.shelf import ModelManager, ModelSlot
from draftwerk.shelf.shelved import Shelved
from draftwerk.speculative.request import Options
from draftwerk.speculative.requests.client_prompts import Prompt

AWAY = Snapshot(models=ModelFigures(target_up=False))


class NoEngine:
    """In the place of an unloaded model's engine."""

    def generate(
        self, prompt: Prompt, options: Options, *, request_id: str
    ) -> AbstractAsyncContextManager[AsyncIterator[Event]]:
        """Refuse: who asks holds no model."""
        raise OverloadedError(1000)

    def snapshot(self) -> Snapshot:
        """Return that no model is there."""
        return AWAY

    def trace(self) -> list[dict[str, object]]:
        """Return nothing."""
        return []

    async def drain(self) -> None:
        """Return at once."""


class ShelfStates:
    """Several models; each has a state, whether it is loaded or not."""

    def __init__(self, first: ServerState, listed: ShelvedModels) -> None:
        """`first` is the state of the first model, which the others share the server's own with."""
        settings = first.settings
        others = [
            first.beside(NoEngine(), each.text_tools, each.model) for each in listed.models[1:]
        ]
        self.states: Sequence[ServerState] = (first, *others)
        self._names = {id(state): state.model.name for state in self.states}
        self._earlier = dict.fromkeys(self._names.values(), AWAY)
        """The counters of each model's engines that have ended."""
        places = {
            each.model.name: ModelSlot(
                Shelved(
                    name=each.model.name,
                    size=each.memory_bytes,
                    is_pinned=each.is_pinned,
                    keep_alive_s=each.keep_alive_s,
                ),
                each.load,
                each.keep_alive_s,
                partial(_needed, state),
            )
            for each, state in zip(listed.models, self.states, strict=True)
        }
        self.shelf = ModelManager[RunningServer](
            places,
            listed.memory_bytes,
            settings.queue_wait_s,
            settings.queue_max,
            first.clock,
            self._loaded,
            self._unloaded,
        )
        for each in listed.models:
            if each.is_pinned:
                self.shelf.want(each.model.name)

    async def hold(self, state: ServerState, keep_alive_s: float | None = None) -> Release:
        """Have a model loaded until the returned function is called. Raises ApiError."""
        name = self._names[id(state)]
        try:
            await self.shelf.hold(name, keep_alive_s)
        except MustWaitError as error:
            _must_wait(error)
        except ShelfClosedError:
            raise draining() from None
        except LoadError as error:
            said = f"The model {name} could not be loaded: {error}."
            raise ApiError(500, said, param="model", code="model_failed") from None
        return partial(self.shelf.release, name)

    def load(self, state: ServerState) -> None:
        """Begin to load a model. Raises ApiError where it has no place."""
        try:
            self.shelf.want(self._names[id(state)])
        except ShelfClosedError:
            raise draining() from None
        except MustWaitError as error:
            _must_wait(error)

    def unload(self, state: ServerState) -> None:
        """Unload a model as soon as no request needs it. Raises ApiError for one that stays."""
        name = self._names[id(state)]
        if self.shelf.places[name].model.is_pinned:
            raise refused(f"The model {name} is pinned by the server.", "model", "unsupported")
        self.shelf.leave(name)

    def snapshot(self, state: ServerState) -> Snapshot:
        """Return a model's engine, with the counters of all that it had since the start."""
        now = state.engine.snapshot()
        return counted([self._earlier[self._names[id(state)]], now], now)

    def described(self, state: ServerState) -> ModelShelving:
        """Return where a model is."""
        name = self._names[id(state)]
        place, now = self.shelf.places[name], self.shelf.clock()
        model = place.model
        left_s = model.used_s + model.keep_alive_s - now
        return ModelShelving(
            state=model.phase,
            progress=place.progress,
            fault=place.fault,
            pinned=model.stays,
            memory_bytes=model.size,
            expected_wait_s=round(self.shelf.expected_wait_s(name), 3),
            requests=model.users,
            waiting=model.waiting,
            loads=place.loads,
            load_s=model.load_s,
            idle_left_s=max(0.0, left_s) if model.is_idle and 0 <= left_s < inf else None,
        )

    def _loaded(self, name: str, running: RunningServer) -> None:
        state = self._state(name)
        state.engine, state.text_tools = running.engine, running.text_tools
        state.model = running.model

    def _unloaded(self, name: str) -> None:
        state = self._state(name)
        self._earlier[name] = counted([self._earlier[name], state.engine.snapshot()], AWAY)
        state.engine = NoEngine()

    def _state(self, name: str) -> ServerState:
        return next(state for state in self.states if self._names[id(state)] == name)


def _needed(state: ServerState) -> int:
    return state.needed


def _must_wait(error: MustWaitError) -> NoReturn:
    """Raise the 503 of a model that is not to be had now."""
    said = f"The model {error.reason}; try again in {error.retry_s:g} s."
    retry_ms = round(1000 * error.retry_s)
    raise ApiError(503, said, param="model", code="model_busy", retry_after_ms=retry_ms) from None
