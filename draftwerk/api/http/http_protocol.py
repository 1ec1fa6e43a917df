"""uvicorn's protocols with an end to their patience: silent sockets, endless headers and bodies.

connection ── first byte ── headers whole ── body whole ── response ── idle ── ...
|<------- header deadline ------->|<-- body deadline -->|            |<-idle->|
"""

import asyncio
import logging
from http import HTTPStatus
from typing import Any, ClassVar, cast

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from draftwerk.api.http.abortable_websocket import AbortableWebSocket
from draftwerk.api.http.connection_ends import ABORT, TCP_CLOSE, error_body, probe, tcp_state
from draftwerk.api.shared.config import Settings
from draftwerk.api.shared.errors import ApiError, overloaded

DISCARD_FACTOR = 8
"""How much of a body that is too large is read, in multiples of the limit, before we hang up."""
GRACE_S = 1.0
"""After the body deadline: the application's own 408 comes first."""
HEADERS_MAX = 64 * 1024
HALF_CLOSED_S = 0.05
"""Between two looks at a connection that its client closed, or half of it."""
RETRY_MS = 1000
"""When to come back where too many connections are open."""
INTERIM = b"HTTP/1.1 102 Processing\r\n\r\n"
PROBES = ("/health", "/ready")
SPARE = 32
"""Connections beyond the limit, each for one probe."""
SPARE_S = 1.0
FULL = "%d connections are open, as many as may be (--connections-max): others are turned away"
log = logging.getLogger("draftwerk")


class AnyLength(int):
    """The expected length of a response whose end is the connection's."""

    def __lt__(self, other: int) -> bool:
        return False

    def __sub__(self, other: int) -> "AnyLength":
        return self


def protocols(settings: Settings) -> tuple[type[asyncio.Protocol], type[asyncio.Protocol]]:
    """Return the HTTP and the WebSocket protocol class of a server with these settings."""

    class Http(DeadlineHttp):
        limits = settings

    class Socket(AbortableWebSocket):
        message_deadline_s = settings.body_deadline_s

    return Http, Socket


class DeadlineHttp(HttpToolsProtocol):
    """HTTP/1.1 whose every phase ends in time."""

    limits: Settings
    is_full: ClassVar[bool] = False
    """Whether the log has that as many connections are open as may be."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.deadline: asyncio.TimerHandle | None = None
        self.headers_open = False
        self.upgraded = False
        """Whether the connection is a WebSocket's now: none of these deadlines is its own."""
        self.header_bytes = 0
        self.body_bytes = 0
        self.is_last_unsent = False
        """Whether the request is the connection's last unless its body begins to come."""
        self.is_spare = False
        """Whether the connection is one of those for probes, beyond the limit."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        more = len(self.connections) - self.limits.connections_max
        self.is_spare = more > 0
        if more > 0 and not self.is_full:
            type(self).is_full = True
            log.warning(FULL, self.limits.connections_max)
        if more > SPARE:
            self.turn_away()
        elif self.is_spare:
            self.arm(min(SPARE_S, self.limits.header_deadline_s), self.turn_away)
        else:
            self.arm(self.limits.header_deadline_s, self.on_header_deadline)

    def connection_lost(self, exc: Exception | None) -> None:
        self.disarm()
        super().connection_lost(exc)
        if len(self.connections) <= self.limits.connections_max // 2:
            type(self).is_full = False

    def eof_received(self) -> bool | None:  # type: ignore[override]
        """Keep half a connection open while its request waits for its answer.

        A client that has gone altogether sends the same: it resets the connection at what is sent
        to it, and so it is sent an interim response. Where an answer has begun, none can be; of
        HTTP/1.0, which has none, the system asks whether the client is there.
        """
        cycle = cast("RequestResponseCycle | None", self.cycle)
        if self.upgraded or cycle is None or cycle.more_body or cycle.response_started:
            return None
        if tcp_state(self.transport) is None:
            return None
        if self.scope["http_version"] == "1.1":
            self.transport.write(INTERIM)
        else:
            probe(self.transport.get_extra_info("socket"))
        cycle.keep_alive = False
        self.arm(HALF_CLOSED_S, self.look_at_half_closed)
        return True

    def look_at_half_closed(self) -> None:
        """Drop the connection once its client has reset it; nobody reads it, so nobody tells."""
        if tcp_state(self.transport) in (None, TCP_CLOSE):
            self.transport.abort()
        else:
            self.arm(HALF_CLOSED_S, self.look_at_half_closed)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        self.header_bytes += len(data)
        self.feed(data)
        if self.upgraded:
            return
        if self.headers_open and self.header_bytes > HEADERS_MAX:
            self.refuse(431, "The headers are too large.")
        elif self.waits_without_limit():
            self.arm(self.limits.header_deadline_s, self.on_header_deadline)

    def feed(self, data: bytes) -> None:
        """Parse what came; a request for a protocol that is not spoken here stays HTTP/1.1.

        Of such a request (Java's clients ask for HTTP/2 in each) the parser skips the body: it is
        parsed once more without the header that asked.
        """
        self._unset_keepalive_if_required()
        parts = [memoryview(data)]
        while parts:
            part = parts.pop()
            assert self.parser is not None
            try:
                self.parser.feed_data(part)
            except httptools.HttpParserError:
                return self.send_400_response("")
            except httptools.HttpParserUpgrade as found:
                if self._should_upgrade():
                    return self.handle_websocket_upgrade()
                if self.asks_for_unknown_protocol():
                    parts += [part[found.args[0] :], memoryview(self.head_without_upgrade())]
                    self.parser = httptools.HttpRequestParser(self)
                    self.parser.set_dangerous_leniencies(lenient_data_after_close=True)

    def asks_for_unknown_protocol(self) -> bool:
        """Whether the request, whose headers are whole, is to be parsed once more."""
        assert self.parser is not None
        asks = self.parser.should_upgrade() and any(name == b"upgrade" for name, _ in self.headers)
        return asks and not self._should_upgrade()

    def head_without_upgrade(self) -> bytes:
        """Return the request's line and its other headers."""
        assert self.parser is not None
        version = self.parser.get_http_version().encode()
        lines = [b"%s %s HTTP/%s" % (self.parser.get_method(), self.url, version)]
        lines += [b"%s: %s" % field for field in self.headers if field[0] != b"upgrade"]
        return b"\r\n".join([*lines, b"", b""])

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.headers_open = True
        self.header_bytes = self.body_bytes = 0
        self.is_last_unsent = False
        if not self.is_spare:
            self.arm(self.limits.header_deadline_s, self.on_header_deadline)
        cast("dict[str, Any]", self.scope)["extensions"] = {ABORT: self.transport.abort}

    def on_headers_complete(self) -> None:
        if self.asks_for_unknown_protocol():
            return
        self.headers_open = False
        self.disarm()
        size = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
        if size > HEADERS_MAX:
            self.refuse(431, "The headers are too large.")
            return
        if self.is_spare and self.url.partition(b"?")[0].decode("latin-1") not in PROBES:
            self.turn_away()
            return
        hosts = sum(name == b"host" for name, _ in self.headers)
        # RFC 9112, section 3.2: a proxy that takes another of them for the host is misled.
        assert self.parser is not None
        if hosts > 1 or (not hosts and self.parser.get_http_version() == "1.1"):
            self.refuse(400, "The request must name exactly one host.")
            return
        super().on_headers_complete()
        cycle = cast("RequestResponseCycle | None", self.cycle)
        if self.scope["http_version"] == "1.0" and cycle is not None:
            # An HTTP/1.0 client cannot read chunks, which uvicorn would send.
            cycle.chunked_encoding, cycle.expected_content_length = False, AnyLength()
        if self.is_spare and cycle is not None:
            cycle.keep_alive = False
        if cycle is not None and cycle.keep_alive and cycle.waiting_for_100_continue:
            # RFC 9110, section 10.1.1: of a client that is refused instead the body never comes.
            cycle.keep_alive, self.is_last_unsent = False, True
        self.arm(self.limits.body_deadline_s + GRACE_S, self.on_body_deadline)

    def on_body(self, body: bytes) -> None:
        # A body that was refused is still read, or its sender would never see the refusal.
        self.body_bytes += len(body)
        if self.is_last_unsent:
            self.is_last_unsent = False
            self.cycle.keep_alive = not self.cycle.response_started
        if self.body_bytes > DISCARD_FACTOR * self.limits.body_bytes:
            self.transport.close()
        if not self.transport.is_closing():
            super().on_body(body)

    def on_message_complete(self) -> None:
        if self.asks_for_unknown_protocol():
            return
        self.disarm()
        if not self.transport.is_closing():
            super().on_message_complete()

    def handle_websocket_upgrade(self) -> None:
        if self.transport.is_closing():  # it was refused
            return
        self.disarm()
        self.upgraded = True
        super().handle_websocket_upgrade()

    def waits_without_limit(self) -> bool:
        """Whether stray bytes between requests have ended the idle deadline, with no other set."""
        if self.upgraded:
            return False
        cycle = cast("RequestResponseCycle | None", self.cycle)
        between = cycle is None or cycle.response_complete
        return between and self.deadline is None and self.timeout_keep_alive_task is None

    def on_header_deadline(self) -> None:
        """End a connection that was silent, or whose headers do not end."""
        self.refuse(408, "The request took too long to arrive.")

    def on_body_deadline(self) -> None:
        """End a connection whose body does not end, as the application did not in time."""
        if self.cycle.response_started:
            self.transport.close()
        else:
            self.on_header_deadline()

    def turn_away(self) -> None:
        """End a connection beyond the limit that is no probe's."""
        self.refuse(503, "Too many connections are open.", overloaded(RETRY_MS))

    def shutdown(self) -> None:
        self.is_last_unsent = False
        super().shutdown()

    def send_400_response(self, msg: str) -> None:
        self.refuse(400, "That is not an HTTP request.")

    def refuse(self, status: int, sentence: str, like: ApiError | None = None) -> None:
        """Answer below the application, in the shape of its errors, and hang up."""
        self.disarm()
        if self.transport.is_closing():
            return
        body = error_body(status, sentence, like and like.code)
        headers = {"content-type": "application/json", "content-length": len(body)}
        lines = (headers | (like.headers if like else {}) | {"connection": "close"}).items()
        head = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n"
        head += "".join(f"{name}: {value}\r\n" for name, value in lines) + "\r\n"
        self.transport.write(head.encode() + body)
        self.transport.close()

    def arm(self, seconds: float, action: Any) -> None:
        """Set the one deadline of the current phase."""
        self.disarm()
        self.deadline = self.loop.call_later(seconds, action)

    def disarm(self) -> None:
        """Remove the deadline."""
        if self.deadline is not None:
            self.deadline.cancel()
            self.deadline = None
