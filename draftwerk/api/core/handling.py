"""What every handler needs, and the rows that routes and `/openapi.json` are made from."""

import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import replace
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from draftwerk.actors.client_prompts import Prompt
from draftwerk.actors.monitoring.snapshot import Snapshot
from draftwerk.api.core.calls import Call
from draftwerk.api.core.errors import refused
from draftwerk.api.core.ports import ServedModel
from draftwerk.api.core.state import ServerState
from draftwerk.speculative.requests.request import Options

SENT = "draftwerk.sent"
"""Key of what a client sent, in a scope, where requests are recorded."""
HOLDS = "draftwerk.holds"
"""Key of what a request gives back when it has ended, in a scope, where models are unloaded."""
EVENTS, LINES = "text/event-stream", "application/x-ndjson"
EndpointHandler = Callable[[Request], Awaitable[ASGIApp]]


class RequestContext(NamedTuple):
    """What a request meets: the model, and whence the seeds of those that have none."""

    model: ServedModel
    new_seed: Callable[[], int] = int


Release = Callable[[], None]


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

    def described(self, state: ServerState) -> "ModelShelving":
        """Return whether a model is loaded, and what that takes."""
        ...

    def load(self, state: ServerState) -> None:
        """Begin to load a model, and return. Raises ApiError where it has no place."""
        ...

    def unload(self, state: ServerState) -> None:
        """Unload a model as soon as no request needs it. Raises ApiError where it must stay."""
        ...


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
    """What it takes at most while it is loaded."""
    expected_wait_s: float = 0.0
    """How long a request would wait for it now."""
    requests: int = 0
    """That need it now."""
    waiting: int = 0
    """Requests that wait for it."""
    loads: int = 1
    """How often it was loaded."""
    load_s: float | None = None
    """How long that took last."""
    idle_left_s: float | None = None
    """Until it is unloaded, if no request comes; None while there is no such time."""


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


class Endpoint(NamedTuple):
    """One method of one address: who answers, what goes in, what comes out."""

    method: str
    path: str
    handler: EndpointHandler
    sentence: str
    """What it does, for the reference."""
    body: type[Struct] | None = None
    reply: type[Struct] | None = None
    """None is any JSON."""
    media_type: str = "application/json"
    stream_type: str = ""
    """Type of a reply that comes bit by bit; empty where it comes whole."""
    parts: tuple[type[Struct], ...] = ()
    """Structs inside the body that know fields only to refuse them."""

    @property
    def address(self) -> str:
        """The path as OpenAPI writes it: parameters without converters."""
        return re.sub(r":\w+\}", "}", self.path)


def routes_of(endpoints: Iterable[Endpoint]) -> list[Route]:
    """Return a route for each path and handler, with all its methods."""
    methods: dict[tuple[str, EndpointHandler], list[str]] = {}
    for each in endpoints:
        methods.setdefault((each.path, each.handler), []).append(each.method)
    return [Route(path, handler, methods=names) for (path, handler), names in methods.items()]


def state_of(request: Request) -> ServerState:
    """Return the server state that the app was made with."""
    return request.app.state.server


def models_of(app: Starlette) -> ModelStates:
    """Return the models that the app was made with."""
    return app.state.models


def tenant_of(request: Request) -> str:
    """Return the name of the API key that came with the request; empty where none is needed."""
    return request.scope.get("tenant", "")


def call_of(
    request: Request, kind: str, prompts: list[Prompt], options: Options, names: dict[str, str]
) -> Call:
    """Return what is asked of the engine, under the request's own id and tenant."""
    return Call(
        request_id=request.scope["request_id"],
        kind=kind,
        prompts=prompts,
        options=replace(options, tenant=tenant_of(request)),
        names=names,
        sent=request.scope.get(SENT),
    )


def json_reply(value: object) -> Response:
    """Return a whole reply."""
    return Response(msgspec.json.encode(value), media_type="application/json")
