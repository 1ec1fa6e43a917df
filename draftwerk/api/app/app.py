"""The routes of the API."""

from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from draftwerk.api.admin import endpoints as service
from draftwerk.api.app.addresses import nothing_at
from draftwerk.api.http.auth import AuthMiddleware
from draftwerk.api.http.page import FOLDER, page
from draftwerk.api.http.refusal_log import RefusalLog
from draftwerk.api.http.request_id import RequestIdMiddleware
from draftwerk.api.openai.batches.room import BatchRoom
from draftwerk.api.openai.responses.socket_endpoint import ResponsesSocket
from draftwerk.api.shared.errors import (
    ApiError,
    ClientGoneError,
    on_api_error,
    on_client_gone,
    on_http_exception,
    turned_away,
)
from draftwerk.api.shared.handling import paths_of, routes_of
from draftwerk.api.shared.memory import BodyRoom
from draftwerk.api.shared.models import HOLDS, ModelStates, OneModel, Release
from draftwerk.api.shared.state import ServerState

ROUTES = [
    *routes_of(service.ENDPOINTS),
    *(WebSocketRoute(path, ResponsesSocket()) for path in paths_of("/v1/responses")),
    Route("/openapi.json", service.openapi),
    Route("/", page),
    Route(FOLDER + "{name}", page),
]

ADDRESSES = [each.path for each in service.ENDPOINTS if "{" not in each.path]
DEBUG_ROUTES = [Route("/debug/trace", service.trace)]
"""Only with `--debug`."""


def create_app(
    state: ServerState,
    proxy_gives_ids: bool = False,
    models: ModelStates | None = None,
    batches: BatchRoom | None = None,
) -> ASGIApp:
    """Return the ASGI application of a server whose engine runs.

    `models` are all of its models, where there are others beside the one in `state`; `batches` is
    the room of files, where some are kept.
    """
    handlers: Any = {
        ApiError: on_api_error,
        HTTPException: on_http_exception,
        ClientGoneError: on_client_gone,
    }
    routes = ROUTES + DEBUG_ROUTES if state.settings.debug else ROUTES
    app = Starlette(routes=routes, exception_handlers=handlers)
    app.router.redirect_slashes = False
    app.router.default = nowhere
    app.state.server = state
    app.state.models = models or OneModel(state)
    app.state.batches = batches
    app.state.bodies = BodyRoom(state.settings.bodies_bytes)
    inner = Releasing(app)
    if batches is not None:
        batches.app = inner
    layers: ASGIApp = AuthMiddleware(inner, state.settings)
    if state.settings.cors_origin:
        layers = CORSMiddleware(
            layers,
            allow_origins=state.settings.cors_origin,
            allow_methods=("GET", "POST", "DELETE"),
            allow_headers=("*",),
            expose_headers=("x-request-id", "request-id", "retry-after", "retry-after-ms"),
        )
    return RequestIdMiddleware(RefusalLog(layers, state), proxy_gives_ids)


class Releasing:
    """Gives back what a request has held, once it has ended: models, and room for its body."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        holds: list[Release] = []
        scope[HOLDS] = holds
        try:
            await self.app(scope, receive, send)
        finally:
            for release in holds:
                release()


async def nowhere(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer what no route matches; a WebSocket too gets a status and a body."""
    if scope["type"] != "websocket":
        raise nothing(scope)
    await receive()
    await turned_away(nothing(scope), scope, receive, send)


def nothing(scope: Scope) -> ApiError:
    """Return the 404 of an address that there is not."""
    path: str = scope["path"].removeprefix(scope.get("root_path", ""))
    return ApiError(404, nothing_at(path, ADDRESSES))
