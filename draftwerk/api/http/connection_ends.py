"""Ways to end a connection from inside the application."""

from typing import Any

import msgspec

from draftwerk.api.core.errors import ApiError

ABORT = "draftwerk.abort"
"""The scope extension that drops a connection whose client does not read."""
HANG_UP = "draftwerk.hang_up"
"""The scope extension that closes a WebSocket without waiting for its client to read."""


def abort_of(scope: Any) -> Any:
    """Return the function that drops a request's connection at once; it does nothing in tests."""
    return scope.get("extensions", {}).get(ABORT, lambda: None)


def hang_up_of(scope: Any) -> Any:
    """Return the function that closes a WebSocket with a code and a reason, read or not."""
    return scope.get("extensions", {}).get(HANG_UP, _nowhere)


def _nowhere(code: int, reason: str) -> None:
    """Close nothing: a server that is not ours has no such extension."""


def error_body(status: int, sentence: str, code: str | None = None) -> bytes:
    """Return the application's error for a request that does not reach it."""
    return msgspec.json.encode(ApiError(status, sentence, code=code).reply)
