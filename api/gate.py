"""What answers while the models load: the socket is open, and says so."""

import msgspec
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from api.errors import ApiError, response
from api.page import HEADERS, PAGE

RETRY_MS = 1000


class Gate:
    """An ASGI application that stands in for the real one until there is one."""

    def __init__(self) -> None:
        self.app: ASGIApp | None = None
        self.progress = "starting"
        """What the loading is at, for whoever asks."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.app is not None:
            await self.app(scope, receive, send)
        elif scope["type"] in ("http", "websocket"):
            await self._answer(scope)(scope, receive, send)

    def _answer(self, scope: Scope) -> Response:
        if scope["path"] == "/":
            return Response(PAGE, headers=HEADERS, media_type="text/html; charset=utf-8")
        if scope["path"] == "/health":
            return Response(msgspec.json.encode({"status": "ok"}), media_type="application/json")
        return response(
            ApiError(
                503,
                f"The server is starting: {self.progress}.",
                code="starting",
                retry_after_ms=RETRY_MS,
            )
        )
