"""The application that answers 503 while the models load."""

import msgspec
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from draftwerk.api.http.page import FILES, FOLDER, PAGE, file
from draftwerk.api.http.request_id import RequestIdMiddleware
from draftwerk.api.shared.errors import ApiError, turned_away

RETRY_MS = 1000
ANSWERS = {
    "/": file(PAGE),
    **{FOLDER + name: file(name) for name in FILES},
    "/health": Response(msgspec.json.encode({"status": "ok"}), media_type="application/json"),
}


class StartupApp:
    """Hands requests to `app`: its own answers, until there is the real one."""

    def __init__(self) -> None:
        self.app: ASGIApp = RequestIdMiddleware(self._answer)
        self.progress = "no model yet"
        """The latest progress line of loading, sent to clients in the meantime."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.app(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            return
        answer = ANSWERS.get(scope["path"]) if scope["type"] == "http" else None
        if answer is None:
            said = f"The server is starting: {self.progress}."
            error = ApiError(503, said, code="starting", retry_after_ms=RETRY_MS)
            await turned_away(error, scope, receive, send)
        else:
            await answer(scope, receive, send)
