"""uvicorn's WebSocket, with an end that the application can bring about."""

from typing import Any, cast

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.http11 import Request, Response

from draftwerk.api.core.errors import SENTENCES
from draftwerk.api.http.connection_ends import ABORT, HANG_UP, error_body

LINGER_S = 1.0
"""How long a WebSocket that broke the protocol is still read, or a reset would lose its close."""


class AbortableWebSocket(WebSocketsSansIOProtocol):
    """A WebSocket that the application can drop, and whose client is sent the reason."""

    lingering = False

    def handle_connect(self, event: Request) -> None:
        answer = self.conn.accept(event)
        if answer.status_code != 101:
            self.refuse(answer)
            return
        super().handle_connect(event)
        scope = cast("dict[str, Any] | None", getattr(self, "scope", None))
        if scope is not None:
            scope["extensions"] |= {ABORT: self.transport.abort, HANG_UP: self.hang_up}

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
        if not self.lingering:
            super().data_received(data)

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
