"""Request ids: taken from the client if harmless, else made; on every reply."""

import logging
import re
import secrets

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from draftwerk.api.core.errors import internal, response

HARMLESS = re.compile(r"[A-Za-z0-9._-]{1,128}")

STARTS = ("http.response.start", "websocket.http.response.start", "websocket.accept")

log = logging.getLogger("draftwerk")


class RequestIdMiddleware:
    """The outermost layer: gives each HTTP request its id, and turns what escapes into a 500."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        request_id = scope["request_id"] = _given(scope) or secrets.token_hex(12)
        started = False

        async def send_with_id(message: Message) -> None:
            nonlocal started
            if message["type"] in STARTS:
                started = True
                message["headers"] = [
                    *message.get("headers", []),
                    (b"x-request-id", request_id.encode()),
                ]
            await send(message)

        try:
            await self.app(scope, receive, send_with_id)
        except Exception:
            log.exception("id=%s the request broke", request_id)
            if started or scope["type"] == "websocket":
                raise
            await response(internal())(scope, receive, send_with_id)


def _given(scope: Scope) -> str | None:
    for name, value in scope["headers"]:
        if name == b"x-request-id":
            text = value.decode("latin-1")
            return text if HARMLESS.fullmatch(text) else None
    return None
