"""The way into `/v1/responses` over a WebSocket."""

from starlette.types import Receive, Scope, Send

from draftwerk.api.http.auth import SUBPROTOCOL
from draftwerk.api.openai.responses.responses_socket import Socket
from draftwerk.api.shared.errors import ApiError, draining, turned_away
from draftwerk.api.shared.state import ServerState

SOCKETS_MAX = 64
"""Open at once for one key."""


class ResponsesSocket:
    """The ASGI endpoint: who may come in is settled before the handshake ends."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        state: ServerState = scope["app"].state.server
        tenant: str = scope["tenant"]
        await receive()
        try:
            _check_room(state, tenant)
        except ApiError as error:
            await turned_away(error, scope, receive, send)
            return
        state.sockets[tenant] += 1
        try:
            await send({"type": "websocket.accept", "subprotocol": _subprotocol(scope)})
            await Socket(state, scope, receive, send).run()
        finally:
            state.sockets[tenant] -= 1


def _check_room(state: ServerState, tenant: str) -> None:
    if state.draining:
        raise draining()
    if state.sockets[tenant] >= SOCKETS_MAX:
        raise ApiError(
            429, f"{SOCKETS_MAX} sockets are open.", code="too_many_sockets", retry_after_ms=1000
        )
    state.admission.check_room()


def _subprotocol(scope: Scope) -> str | None:
    """Return the first protocol offered that is not a key in disguise."""
    offered = (each for each in scope["subprotocols"] if not each.startswith(SUBPROTOCOL))
    return next(offered, None)
