"""Messages of a Responses socket as they come: text, no larger than a body may be."""

import msgspec
from starlette.types import Message

from draftwerk.api.openai.responses.responses_schema import ClientEvent


class CloseError(Exception):
    """The socket must close with this code."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


def message_bytes(message: Message, size_max: int) -> bytes:
    """Return a message's JSON. Raises CloseError."""
    text = message.get("text")
    if text is None:
        raise CloseError(1003, "Text frames only.")
    raw = text.encode()
    if len(raw) > size_max:  # where another server reads the frames, as Ray Serve's does
        raise CloseError(1009, f"The message is over {size_max} bytes.")
    return raw


def stream_of(raw: bytes) -> str | None:
    """Return the stream that a bad event named, if that much of it can be read."""
    try:
        return msgspec.json.decode(raw, type=ClientEvent).stream_id
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return None
