"""Request ids: taken from the client if harmless, else made; on every reply."""

import logging
import re
import secrets

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from draftwerk.api.shared.errors import internal, response

HARMLESS = re.compile(r"[A-Za-z0-9._-]{1,128}")

ANTHROPIC = b"anthropic-version"
"""A header of every request of Anthropic's clients, which read the id from `request-id`."""
STARTS = ("http.response.start", "websocket.http.response.start", "websocket.accept")

log = logging.getLogger("draftwerk")


class RequestIdMiddleware:
    """The outermost layer: gives each HTTP request its id, and turns what escapes into a 500.

    A proxy that gives ids sends them back itself, with all but the answers to a WebSocket: then
    only an id of our own is sent.
    """

    def __init__(self, app: ASGIApp, proxy_gives_ids: bool = False) -> None:
        self.app = app
        self.proxy_gives_ids = proxy_gives_ids

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        given = _harmless(headers.get(b"x-request-id", b""))
        request_id = scope["request_id"] = given or secrets.token_hex(12)
        starts = STARTS[1:] if self.proxy_gives_ids and given else STARTS
        also = [(b"request-id", request_id.encode())] if ANTHROPIC in headers else []
        started = False

        async def send_with_id(message: Message) -> None:
            nonlocal started
            started = started or message["type"] in STARTS
            if message["type"] in STARTS:
                its = [(b"x-request-id", request_id.encode())] if message["type"] in starts else []
                message["headers"] = [*message.get("headers", []), *its, *also]
            await send(message)

        try:
            await self.app(scope, receive, send_with_id)
        except Exception:
            log.exception("id=%s the request broke", request_id)
            if started or scope["type"] == "websocket":
                raise
            await response(internal(), scope)(scope, receive, send_with_id)


def _harmless(given: bytes) -> str | None:
    text = given.decode("latin-1")
    return text if HARMLESS.fullmatch(text) else None
