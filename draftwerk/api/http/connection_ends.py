"""Ways to end a connection, and to bound what it holds, from inside the application."""

import asyncio
import socket
import sys
from typing import Any

import msgspec

from draftwerk.api.shared.errors import ApiError

ABORT = "draftwerk.abort"
"""The scope extension that drops a connection whose client does not read."""
HANG_UP = "draftwerk.hang_up"
"""The scope extension that closes a WebSocket without waiting for its client to read."""
MESSAGE_ROOM = "draftwerk.message_room"
"""The scope extension that has a WebSocket count what has come of a message."""
TCP_CLOSE = 7
"""State, on Linux, of a connection that was reset."""


def abort_of(scope: Any) -> Any:
    """Return the function that drops a request's connection at once; it does nothing in tests."""
    return scope.get("extensions", {}).get(ABORT, lambda: None)


def hang_up_of(scope: Any) -> Any:
    """Return the function that closes a WebSocket with a code and a reason, read or not."""
    return scope.get("extensions", {}).get(HANG_UP, _nowhere)


def message_room_of(scope: Any) -> Any:
    """Return the function that says in which room a WebSocket's messages count as they come."""
    return scope.get("extensions", {}).get(MESSAGE_ROOM, _uncounted)


def _uncounted(room: object) -> None:
    """Count nothing: what has come of a message is another server's."""


def _nowhere(code: int, reason: str) -> None:
    """Close nothing: a server that is not ours has no such extension."""


def error_body(status: int, sentence: str, code: str | None = None) -> bytes:
    """Return the application's error for a request that does not reach it."""
    return msgspec.json.encode(ApiError(status, sentence, code=code).reply)


def tcp_state(transport: asyncio.BaseTransport) -> int | None:
    """Return a connection's state; None where the system does not tell."""
    found = transport.get_extra_info("socket")
    if sys.platform != "linux" or found is None:
        return None
    try:
        return found.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
    except OSError:
        return None


def probe(connection: socket.socket) -> None:
    """Have the system ask, each second, whether the other side is there."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT):
        connection.setsockopt(socket.IPPROTO_TCP, option, 1)
