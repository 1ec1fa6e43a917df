"""uvicorn's WebSocket, with an end that the application can bring about.

What has come of a message counts in the room for bodies, and has to be whole in time, as a body.
"""

import asyncio
from typing import Any, cast

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame
from websockets.http11 import Request, Response

from draftwerk.api.http.connection_ends import ABORT, HANG_UP, MESSAGE_ROOM, error_body
from draftwerk.api.shared.errors import SENTENCES, ApiError
from draftwerk.api.shared.memory import BodyRoom, HeldBody

LINGER_S = 1.0
"""How long a WebSocket that broke the protocol is still read, or a reset would lose its close."""
PARSED_BYTES = 2**13
"""Bytes that are parsed in one turn of the event loop: of frames without data, a thousand."""


class AbortableWebSocket(WebSocketsSansIOProtocol):
    """A WebSocket that the application can drop, and whose client is sent the reason."""

    lingering = False
    unparsed = bytearray()
    """Bytes that have come and wait for their turn; this one is empty."""
    message_deadline_s = 30.0
    held: HeldBody | None = None
    """Room that the next message takes, until the application has it."""
    message_deadline: asyncio.TimerHandle | None = None

    def handle_connect(self, event: Request) -> None:
        answer = self.conn.accept(event)
        if answer.status_code != 101:
            self.refuse(answer)
            return
        super().handle_connect(event)
        scope = cast("dict[str, Any] | None", getattr(self, "scope", None))
        if scope is not None:
            scope["extensions"] |= {
                ABORT: self.transport.abort,
                HANG_UP: self.hang_up,
                MESSAGE_ROOM: self.count_in,
            }

    def refuse(self, answer: Response) -> None:
        """Answer what is no handshake, in our words."""
        said = SENTENCES.get(answer.status_code, "That is not a WebSocket handshake.")
        answer.body = error_body(answer.status_code, said)
        for name, value in (
            ("Content-Type", "application/json"),
            ("Content-Length", str(len(answer.body))),
        ):
            del answer.headers[name]
            answer.headers[name] = value
        self.handshake_initiated = self.handshake_complete = self.close_sent = True
        self.conn.send_response(answer)
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.transport.close()

    def hang_up(self, code: int, reason: str) -> None:
        """Put a close behind what the client has not read yet, and wait no longer than a moment."""
        if not self.close_sent and not self.transport.is_closing():
            self.conn.send_close(code, reason)
            self.transport.write(b"".join(self.conn.data_to_send()))
            self.close_sent = True
        self.loop.call_later(LINGER_S, self.transport.abort)

    def data_received(self, data: bytes) -> None:
        """Parse what has come, some in each turn: small frames take long for their bytes."""
        if self.unparsed:
            self.unparsed += data
            self.transport.pause_reading()
        elif len(data) <= PARSED_BYTES:
            self.parse(data)
        else:
            self.unparsed = bytearray(data)
            self.transport.pause_reading()
            self.parse_some()

    def parse(self, data: bytes) -> None:
        """Parse bytes, unless the connection ends."""
        if not self.lingering:
            super().data_received(data)
            self.hold()

    def parse_some(self) -> None:
        """Parse some of what has come, and the rest later; then read on."""
        part = bytes(self.unparsed[:PARSED_BYTES])
        del self.unparsed[:PARSED_BYTES]
        self.parse(part)
        if self.unparsed and not self.lingering:
            self.loop.call_soon(self.parse_some)
            return
        self.unparsed.clear()
        if not self.read_paused and not self.transport.is_closing():
            self.transport.resume_reading()

    def handle_cont(self, event: Frame) -> None:
        # In one part: a million small ones take fifty times their bytes, and long to add up.
        parts = cast("list[bytearray]", self.frames)
        parts[0] = bytearray(parts[0]) if isinstance(parts[0], bytes) else parts[0]
        parts[0] += event.data
        if event.fin:
            self.send_receive_event_to_app()

    def count_in(self, room: BodyRoom) -> None:
        """Have messages take room from now on."""
        self.held = HeldBody(room)

    def hold(self) -> None:
        """Take room for what has come of a message; close where there is none."""
        if self.held is None or self.close_sent:
            return
        try:
            self.held.grow(len(self.conn.reader.buffer) + sum(map(len, self.frames)))
        except ApiError:
            self.drop(1013, "Large messages of others leave no room for this one.")
        if self.held.taken and self.message_deadline is None and self.queue.empty():
            said = "The message took too long to arrive."
            self.message_deadline = self.loop.call_later(
                self.message_deadline_s, self.drop, 1008, said
            )

    def drop(self, code: int, reason: str) -> None:
        """Close in the middle of a message, whose rest is not read."""
        self.let_go()
        self.lingering = True
        self.hang_up(code, reason)

    def let_go(self) -> None:
        """Give back the room of a message that the application has, or never will."""
        self.disarm()
        if self.held is not None:
            self.held.release()

    def disarm(self) -> None:
        """Wait for no message."""
        if self.message_deadline is not None:
            self.message_deadline.cancel()
            self.message_deadline = None

    def send_receive_event_to_app(self) -> None:
        super().send_receive_event_to_app()
        self.disarm()

    async def receive(self) -> Any:
        message = await super().receive()
        self.let_go()
        if self.unparsed:
            self.transport.pause_reading()
        return message

    def connection_lost(self, exc: Exception | None) -> None:
        self.let_go()
        super().connection_lost(exc)

    def handle_parser_exception(self) -> None:
        close = self.conn.close_sent
        assert close is not None
        self.queue.put_nowait(
            {"type": "websocket.disconnect", "code": close.code, "reason": close.reason}
        )
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.close_sent = self.lingering = True
        self.transport.resume_reading()
        self.close_timer = self.loop.call_later(LINGER_S, self.transport.close)
