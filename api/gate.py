"""What answers while the models load: the socket is open, and says so."""

import msgspec
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from api.errors import ApiError, turned_away
from api.page import HEADERS, PAGE

RETRY_MS = 1000
ANSWERS = {
    "/": Response(PAGE, headers=HEADERS, media_type="text/html; charset=utf-8"),
    "/health": Response(msgspec.json.encode({"status": "ok"}), media_type="application/json"),
}


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
            answer = ANSWERS.get(scope["path"]) if scope["type"] == "http" else None
            if answer is None:
                await turned_away(self._starting(), scope, receive, send)
            else:
                await answer(scope, receive, send)

    def _starting(self) -> ApiError:
        said = f"The server is starting: {self.progress}."
        return ApiError(503, said, code="starting", retry_after_ms=RETRY_MS)
