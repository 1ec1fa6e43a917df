"""The models of a server, as its handlers meet them: one that stays, or several on a shelf."""

from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec import Struct
from starlette.applications import Starlette

from draftwerk.actors.monitoring.snapshot import Snapshot
from draftwerk.api.shared.errors import refused
from draftwerk.api.shared.state import ServerState

HOLDS = "draftwerk.holds"
"""Key of what a request gives back when it has ended, in a scope."""
Release = Callable[[], None]


class ModelShelving(Struct, frozen=True, kw_only=True):
    """Where a model is between the disk and its processes."""

    state: str = "ready"
    """unloaded, loading, ready or leaving (it takes no more requests until it is loaded again)."""
    progress: str = ""
    """How far its load is."""
    fault: str = ""
    """Why it could not be loaded last time."""
    pinned: bool = True
    """Whether it stays loaded."""
    memory_bytes: int = 0
    """The most memory that it takes while it is loaded."""
    expected_wait_s: float = 0.0
    """How long a request would wait for it now."""
    requests: int = 0
    """Requests that need it now."""
    waiting: int = 0
    """Requests that wait for it."""
    loads: int = 1
    """How often it was loaded."""
    load_s: float | None = None
    """How long that took last."""
    idle_left_s: float | None = None
    """Until it is unloaded, if no request comes; None while there is no such time."""

    @property
    def is_loaded(self) -> bool:
        """Whether it has an engine."""
        return self.state in ("ready", "leaving")


class ModelStates(Protocol):
    """The models of a server, each with a state of its own; the first is the default."""

    @property
    def states(self) -> Sequence[ServerState]: ...

    async def hold(self, state: ServerState, keep_alive_s: float | None = None) -> Release:
        """Have a model loaded until the returned function is called.

        `keep_alive_s` is for how long it stays after that. Raises ApiError where it has to wait.
        """
        ...

    def snapshot(self, state: ServerState) -> Snapshot:
        """Return a model's engine, with the counters of all that it had since the start."""
        ...

    def described(self, state: ServerState) -> ModelShelving:
        """Return whether a model is loaded, and what that takes."""
        ...

    def load(self, state: ServerState) -> None:
        """Begin to load a model, and return. Raises ApiError where it has no place."""
        ...

    def unload(self, state: ServerState) -> None:
        """Unload a model as soon as no request needs it. Raises ApiError where it must stay."""
        ...


class OneModel:
    """A server's only model, which is always loaded."""

    def __init__(self, state: ServerState) -> None:
        self.states = (state,)

    async def hold(self, state: ServerState, keep_alive_s: float | None = None) -> Release:
        """Do nothing: it stays."""
        return nothing_held

    def snapshot(self, state: ServerState) -> Snapshot:
        """Return that of its only engine."""
        return state.engine.snapshot()

    def described(self, state: ServerState) -> ModelShelving:
        """Return that it is loaded."""
        return ModelShelving(requests=state.needed)

    def load(self, state: ServerState) -> None:
        """Do nothing: it is loaded."""

    def unload(self, state: ServerState) -> None:
        """Refuse it."""
        raise refused("This server's only model stays loaded.", "model", "unsupported")


def nothing_held() -> None:
    """Give nothing back."""


def models_of(app: Starlette) -> ModelStates:
    """Return the models that the app was made with."""
    return app.state.models
