"""The door's table of contents."""

from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from api import generate, service
from api.auth import Guard
from api.connection import ClientGoneError
from api.door import Door
from api.errors import (
    SENTENCES,
    ApiError,
    on_api_error,
    on_client_gone,
    on_http_exception,
    turned_away,
)
from api.identity import Identity
from api.page import page
from api.responses_socket import ResponsesSocket

ROUTES = [
    Route("/v1/chat/completions", generate.chat, methods=["POST"]),
    Route("/v1/completions", generate.completion, methods=["POST"]),
    Route("/v1/responses", generate.respond, methods=["POST"]),
    WebSocketRoute("/v1/responses", ResponsesSocket()),
    Route("/v1/models", service.models),
    Route("/v1/models/{name:path}", service.model),
    Route("/v1/capabilities", service.abilities),
    Route("/tokenize", service.tokenize, methods=["POST"]),
    Route("/detokenize", service.detokenize, methods=["POST"]),
    Route("/health", service.health),
    Route("/ready", service.ready),
    Route("/metrics", service.metrics),
    Route("/openapi.json", service.openapi),
    Route("/", page),
]

DEBUG_ROUTES = [Route("/debug/trace", service.trace)]
"""Only with `--debug`."""


def create_app(door: Door) -> ASGIApp:
    """Return the ASGI application of a door whose engine runs."""
    handlers: Any = {
        ApiError: on_api_error,
        HTTPException: on_http_exception,
        ClientGoneError: on_client_gone,
    }
    routes = ROUTES + DEBUG_ROUTES if door.settings.debug else ROUTES
    app = Starlette(routes=routes, exception_handlers=handlers)
    app.router.redirect_slashes = False
    app.router.default = nowhere
    app.state.door = door
    layers: ASGIApp = Guard(app, door.settings)
    if door.settings.cors_origin:
        layers = CORSMiddleware(
            layers,
            allow_origins=door.settings.cors_origin,
            allow_methods=("GET", "POST"),
            allow_headers=("*",),
            expose_headers=("x-request-id", "retry-after", "retry-after-ms"),
        )
    return Identity(layers)


async def nowhere(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer what no route matches; a WebSocket too gets a status and a body."""
    if scope["type"] != "websocket":
        raise HTTPException(404)
    await receive()
    await turned_away(ApiError(404, SENTENCES[404]), scope, receive, send)
