"""The door's table of contents."""

from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.routing import Route
from starlette.types import ASGIApp

from api import generate, service
from api.connection import ClientGoneError
from api.door import Door
from api.errors import ApiError, on_api_error, on_client_gone, on_http_exception
from api.identity import Identity

ROUTES = [
    Route("/v1/chat/completions", generate.chat, methods=["POST"]),
    Route("/v1/completions", generate.completion, methods=["POST"]),
    Route("/v1/models", service.models),
    Route("/v1/models/{name:path}", service.model),
    Route("/v1/capabilities", service.abilities),
    Route("/tokenize", service.tokenize, methods=["POST"]),
    Route("/detokenize", service.detokenize, methods=["POST"]),
    Route("/health", service.health),
    Route("/ready", service.ready),
    Route("/metrics", service.metrics),
]


def create_app(door: Door) -> ASGIApp:
    """Return the ASGI application of a door whose engine runs."""
    handlers: Any = {
        ApiError: on_api_error,
        HTTPException: on_http_exception,
        ClientGoneError: on_client_gone,
    }
    app = Starlette(routes=ROUTES, exception_handlers=handlers)
    app.router.redirect_slashes = False
    app.state.door = door
    return Identity(app)
