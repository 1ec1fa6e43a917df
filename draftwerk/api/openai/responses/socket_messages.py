"""Messages of a Responses socket as they come: text, no larger than a body may be."""

from typing import NamedTuple

import msgspec
from starlette.types import Message

from draftwerk.api.openai.responses.responses_schema import ClientEvent
from draftwerk.api.requests.decode import known_to_schemas
from draftwerk.api.shared.calls import SentBody
from draftwerk.api.shared.memory import HeldBody
from draftwerk.api.shared.state import ServerState

PATH = "/v1/responses"


class CloseError(Exception):
    """The socket must close with this code."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


class ClientMessage(NamedTuple):
    """A message of a client."""

    raw: bytes
    held: HeldBody
    """Room that it takes."""
    sent: SentBody | None
    """For the record, if there is one."""


async def client_message(
    state: ServerState, raw: bytes, tenant: str, held: HeldBody
) -> ClientMessage:
    """Return a message whose pictures are read. Raises ApiError."""
    known = await known_to_schemas(state, PATH, raw, tenant, held.holds)
    sent = SentBody(PATH, raw) if state.recorder is not None else None
    return ClientMessage(known, held, sent)


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
