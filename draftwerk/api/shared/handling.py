"""The needs of every handler, and the rows that routes and `/openapi.json` are made from."""

import re
from collections.abc import Awaitable, Callable, Iterable
from typing import NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from draftwerk.api.shared.calls import Call
from draftwerk.api.shared.errors import ApiError
from draftwerk.api.shared.memory import HeldBody
from draftwerk.api.shared.models import HOLDS
from draftwerk.api.shared.ports import ServedModel
from draftwerk.api.shared.state import ServerState
from draftwerk.speculative.request import Options
from draftwerk.speculative.requests.client_prompts import HalfTurn, Prompt

SENT = "draftwerk.sent"
"""Key of what a client sent, in a scope, where requests are recorded."""
ADMIN = "admin"
"""The name of the key that may do what concerns all others."""
VERSION = "/v1"
"""First part of addresses, which clients may leave out."""
EVENTS, LINES = "text/event-stream", "application/x-ndjson"
EndpointHandler = Callable[[Request], Awaitable[ASGIApp]]


class RequestContext(NamedTuple):
    """The model that a request meets, and what draws the seed of one that names none."""

    model: ServedModel
    new_seed: Callable[[], int] = int


class Endpoint(NamedTuple):
    """One method of one address: who answers, what goes in, what comes out."""

    method: str
    path: str
    handler: EndpointHandler
    sentence: str
    """A sentence on what it does, for the reference."""
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
    """Return a route for each path and handler, with all its methods; with and without `/v1`."""
    methods: dict[tuple[str, EndpointHandler], list[str]] = {}
    for each in endpoints:
        for path in paths_of(each.path):
            methods.setdefault((path, each.handler), []).append(each.method)
    return [Route(path, handler, methods=names) for (path, handler), names in methods.items()]


def paths_of(path: str) -> tuple[str, ...]:
    """Return a path, and what clients call it whose address of the server ends before `/v1`."""
    return (path, path.removeprefix(VERSION)) if path.startswith(VERSION + "/") else (path,)


def state_of(request: Request) -> ServerState:
    """Return the server state that the app was made with."""
    return request.app.state.server


def tenant_of(request: Request) -> str:
    """Return the name of the API key that came with the request; empty where none is needed."""
    return request.scope.get("tenant", "")


def held_body(request: Request) -> HeldBody:
    """Return what a request holds of the room for bodies, until it has ended."""
    held = HeldBody(request.app.state.bodies)
    request.scope.setdefault(HOLDS, []).append(held.release)
    return held


def may_unload(request: Request) -> bool:
    """Whether who asks may have a model unloaded: of several keys only the one named `admin`."""
    return len(state_of(request).settings.api_key) < 2 or tenant_of(request) == ADMIN


def check_may_unload(request: Request) -> None:
    """Raise the 403 of who may not."""
    if not may_unload(request):
        said = "Of several API keys only the one that is named admin unloads a model."
        raise ApiError(403, said, code="admin_only")


def call_of(
    request: Request,
    kind: str,
    prompts: list[Prompt],
    options: Options,
    names: dict[str, str],
    half: HalfTurn | None = None,
) -> Call:
    """Return what is asked of the engine, under the request's own id and tenant."""
    return Call(
        request_id=request.scope["request_id"],
        kind=kind,
        prompts=prompts,
        options=replace(options, tenant=tenant_of(request)),
        names=names,
        sent=request.scope.get(SENT),
        half=half,
    )


def json_reply(value: object) -> Response:
    """Return a whole reply."""
    return Response(msgspec.json.encode(value), media_type="application/json")
