"""Raw frames that break the protocol: each closes with its code, and the log has no traceback."""

import asyncio
import json
import os
import random
import struct
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import pytest
import pytest_asyncio
from websockets.frames import Frame, Opcode

from draftwerk.api.http.abortable_websocket import PARSED_BYTES, AbortableWebSocket
from tests.api.conftest import Served, serving
from tests.api.support.fake_engine import FakeEngine
from tests.api.support.quiet import quiet
from tests.support.waiting import DEADLINE_S, until

__all__ = ["quiet"]

CONTINUED, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
HANDSHAKE = {
    "host": "x",
    "upgrade": "websocket",
    "connection": "Upgrade",
    "sec-websocket-version": "13",
    "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
}
CREATE = json.dumps({"type": "response.create", "input": "Hello"}).encode()
KEPT = None
"""Not a code: the socket stays open and answers."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def strict() -> AsyncGenerator[Served, None]:
    async with serving(FakeEngine(), idle_s=1.0, body_max="3MiB", bodies_max="4MiB") as found:
        yield found


def frame(
    opcode: int, payload: bytes = b"", *, last: bool = True, masked: bool = True, reserved: int = 0
) -> bytes:
    """Return one frame as a client sends it, or as it must not."""
    head = bytes([last << 7 | reserved << 4 | opcode])
    bit = masked << 7
    if len(payload) < 126:
        head += bytes([bit | len(payload)])
    elif len(payload) < 2**16:
        head += bytes([bit | 126]) + struct.pack(">H", len(payload))
    else:
        head += bytes([bit | 127]) + struct.pack(">Q", len(payload))
    if not masked:
        return head + payload
    mask = os.urandom(4)
    key = (mask * (len(payload) // 4 + 1))[: len(payload)]
    mixed = int.from_bytes(payload, "big") ^ int.from_bytes(key, "big")
    return head + mask + mixed.to_bytes(len(payload), "big")


def closing(code: int, reason: bytes = b"") -> bytes:
    return frame(CLOSE, struct.pack(">H", code) + reason)


@dataclass
class Raw:
    """A TCP connection after the handshake."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def frame(self) -> tuple[int, bytes]:
        """Return the next frame's opcode and payload."""
        first, size = await self.reader.readexactly(2)
        assert first & 0x70 == 0
        assert size < 128
        if size == 126:
            (size,) = struct.unpack(">H", await self.reader.readexactly(2))
        elif size == 127:
            (size,) = struct.unpack(">Q", await self.reader.readexactly(8))
        return first & 15, await self.reader.readexactly(size)

    async def code(self) -> int | None:
        """Read until the server closes; returns its code, or KEPT if a response ends first."""
        while True:
            opcode, payload = await self.frame()
            if opcode == CLOSE:
                return struct.unpack(">H", payload[:2])[0] if payload else 1005
            if opcode == TEXT and json.loads(payload)["type"] == "response.completed":
                return KEPT


async def dialled(served: Served, head: bytes) -> tuple[int, Raw]:
    """Send a request's head; returns the status of the answer."""
    reader, writer = await served.dialled()
    writer.write(head)
    status_line = await reader.readline()
    return int(status_line.split(b" ")[1]), Raw(reader, writer)


def request(path: str = "/v1/responses", method: str = "GET", **headers: str | None) -> bytes:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    lines = [f"{name}: {value}" for name, value in {**HANDSHAKE, **given}.items() if value]
    return "\r\n".join([f"{method} {path} HTTP/1.1", *lines, "", ""]).encode()


@asynccontextmanager
async def opened(served: Served) -> AsyncGenerator[Raw, None]:
    status, raw = await dialled(served, request())
    while status == 408:  # the machine was slower than the server's patience
        raw.writer.close()
        status, raw = await dialled(served, request())
    try:
        assert status == 101
        await raw.reader.readuntil(b"\r\n\r\n")
        yield raw
    finally:
        raw.writer.close()


WRONG = {
    "a binary frame": (frame(BINARY, b"\x00\x01"), 1003),
    "an empty binary frame": (frame(BINARY), 1003),
    "a binary message in fragments": (
        frame(BINARY, b"a", last=False) + frame(CONTINUED, b"b"),
        1003,
    ),
    "bad UTF-8": (frame(TEXT, b"\xff\xfe"), 1007),
    "half a code point": (frame(TEXT, b'{"type": "\xe2\x82'), 1007),
    "beyond Unicode": (frame(TEXT, b'"\xf4\x90\x80\x80"'), 1007),
    "bad UTF-8 over two frames": (
        frame(TEXT, b"\xe2\x82", last=False) + frame(CONTINUED, b"\x28"),
        1007,
    ),
    "an escaped lone surrogate": (frame(TEXT, b'{"type": "\\ud800"}'), 1007),
    "no JSON": (frame(TEXT, b"{"), 1007),
    "an empty text": (frame(TEXT), 1007),
    "not a number": (frame(TEXT, b'{"type": NaN}'), 1007),
    "two values": (frame(TEXT, b'{"type": "x"} {}'), 1007),
    "a null byte": (frame(TEXT, b"\x00"), 1007),
    "a byte over the limit": (frame(TEXT, b"x" * (3 * 2**20 + 1)), 1009),
    "as much in fragments": (
        frame(TEXT, b"x" * 2**20, last=False) + frame(CONTINUED, b"x" * (2 * 2**20 + 1)),
        1009,
    ),
    "a length of 2^62, announced": (bytes([0x81, 0xFF]) + struct.pack(">Q", 2**62), 1009),
    "a length of 2^63, announced": (bytes([0x81, 0xFF]) + struct.pack(">Q", 2**63), 1009),
    "no mask": (frame(TEXT, CREATE, masked=False), 1002),
    "a reserved bit": (frame(TEXT, CREATE, reserved=1), 1002),
    "opcode 3": (frame(3, b"x"), 1002),
    "opcode 15": (frame(15, b"x"), 1002),
    "a continuation of nothing": (frame(CONTINUED, b"x"), 1002),
    "a binary within a text": (frame(TEXT, b"{", last=False) + frame(BINARY, b"}"), 1002),
    "a ping in fragments": (frame(PING, b"x", last=False), 1002),
    "a close of 126 bytes": (frame(CLOSE, b"\x03\xe8" + b"x" * 124), 1002),
    "a close of one byte": (frame(CLOSE, b"\x03"), 1002),
    "close code 999": (closing(999), 1002),
    "close code 1005": (closing(1005), 1002),
    "close code 5000": (closing(5000), 1002),
    "a close with bad UTF-8": (closing(1000, b"\xff"), 1007),
    "a close": (closing(1000, b"bye"), 1000),
    "a close with our own code": (closing(4321), 4321),
    "a close without a code": (frame(CLOSE), 1005),
    "HTTP": (b"GET / HTTP/1.1\r\nhost: x\r\n\r\n", 1002),
}


@pytest.mark.parametrize(("sent", "code"), WRONG.values(), ids=WRONG.keys())
async def test_a_frame_that_must_not_be_closes_with_its_code(
    strict: Served, sent: bytes, code: int
) -> None:
    async with asyncio.timeout(DEADLINE_S), opened(strict) as raw:
        raw.writer.write(sent)
        assert await raw.code() == code
        raw.writer.write_eof()
        assert await raw.reader.read() == b""


FINE = {
    "one byte at a time": [bytes([byte]) for byte in frame(TEXT, CREATE)],
    "in three fragments": [
        frame(TEXT, CREATE[:9], last=False),
        frame(CONTINUED, CREATE[9:20], last=False),
        frame(CONTINUED, CREATE[20:]),
    ],
    "with empty fragments": [
        frame(TEXT, b"", last=False),
        *[frame(CONTINUED, b"", last=False)] * 500,
        frame(CONTINUED, CREATE),
    ],
    "a byte a fragment": [
        frame(TEXT, b"", last=False),
        *[frame(CONTINUED, bytes([byte]), last=False) for byte in CREATE],
        frame(CONTINUED),
    ],
    "a ping between fragments": [
        frame(TEXT, CREATE[:9], last=False),
        frame(PING, b"here?"),
        frame(CONTINUED, CREATE[9:]),
    ],
    "pongs nobody asked for": [frame(PONG, b"x") * 100, frame(TEXT, CREATE)],
    "a code point over two fragments": [
        frame(TEXT, CREATE[:-2] + b"\xe2", last=False),
        frame(CONTINUED, b"\x82\xac" + CREATE[-2:]),
    ],
    "an event that cannot be obeyed first": [
        frame(TEXT, b'{"type": "response.create", "n": 1000000000, "input": []}'),
        frame(TEXT, b'{"type": "response.create", "x": ' + b"[" * 200_000),
        frame(TEXT, b'{"type": "response.cancel", "response_id": "' + b"x" * 300 + b'"}'),
        frame(TEXT, CREATE),
    ],
}


@pytest.mark.parametrize("sent", FINE.values(), ids=FINE.keys())
async def test_an_event_is_an_event_however_it_comes(strict: Served, sent: list[bytes]) -> None:
    async with asyncio.timeout(DEADLINE_S), opened(strict) as raw:
        for part in sent:
            raw.writer.write(part)
            await raw.writer.drain()
        assert await raw.code() is KEPT


LARGE = b'{"type": "response.create", "input": "!held", "x": "' + b"x" * (3 * 2**20 - 60) + b'"}'


async def test_large_messages_share_the_room_of_bodies() -> None:
    """What has come of one counts, while it comes and until it has been answered."""
    async with serving(engine := FakeEngine(), body_max="3MiB", bodies_max="3MiB") as served:
        async with opened(served) as first, opened(served) as other:
            first.writer.write(frame(TEXT, LARGE))
            await until(lambda: bool(engine.submitted))
            other.writer.write(frame(TEXT, LARGE)[:-1])
            assert await other.code() == 1013
            engine.released.set()
            assert await first.code() is KEPT
        async with opened(served) as last:
            last.writer.write(frame(TEXT, LARGE))
            assert await last.code() is KEPT


async def test_a_large_message_has_to_come_in_time() -> None:
    async with serving(FakeEngine(), body_deadline_s=0.2) as served, opened(served) as slow:
        slow.writer.write(frame(TEXT, LARGE)[:-1])
        assert await slow.code() == 1008


HANDSHAKES = {
    "no key": (request(sec_websocket_key=None), 400),
    "a key of the wrong length": (request(sec_websocket_key="eA=="), 400),
    "a key that is not base64": (request(sec_websocket_key="!!!"), 400),
    "version 8": (request(sec_websocket_version="8"), 400),
    "no version": (request(sec_websocket_version=None), 400),
    "another upgrade": (request(upgrade="h2c"), 405),
    "no upgrade": (request(upgrade=None), 405),
    "no connection": (request(connection=None), 405),
    "by POST": (request(method="POST", content_length="0"), 405),
    "another path": (request("/v1/response"), 404),
    "another site's page": (request(origin="https://evil.example"), 403),
    "an offer of compression": (request(sec_websocket_extensions="permessage-deflate"), 101),
    "an offer of nonsense": (request(sec_websocket_extensions="x; y=1, ;;;"), 101),
    "a protocol that is no token": (request(sec_websocket_protocol="a b"), 400),
    "a protocol": (request(sec_websocket_protocol="realtime"), 101),
}


@pytest.mark.parametrize(("head", "expected"), HANDSHAKES.values(), ids=HANDSHAKES.keys())
async def test_a_handshake_gets_a_status(strict: Served, head: bytes, expected: int) -> None:
    async with asyncio.timeout(DEADLINE_S):
        status, raw = await dialled(strict, head)
        assert status == expected
        if status in (400, 405):
            await raw.reader.readuntil(b'"type":"invalid_request_error"')
        raw.writer.close()


async def test_the_headers_deadline_ends_with_the_handshake() -> None:
    async with (
        serving(FakeEngine(), header_deadline_s=0.2, idle_s=0.2) as served,
        asyncio.timeout(DEADLINE_S),
        opened(served) as raw,
    ):
        await asyncio.sleep(0.5)
        raw.writer.write(frame(TEXT, CREATE))
        assert await raw.code() is KEPT


async def test_half_a_frame_and_then_silence_is_idle() -> None:
    async with (
        serving(FakeEngine(), socket_idle_s=0.3) as served,
        asyncio.timeout(DEADLINE_S),
        opened(served) as raw,
    ):
        raw.writer.write(frame(TEXT, CREATE)[:9])
        assert await raw.code() == 1001


async def test_going_without_a_word_leaves_nothing(strict: Served) -> None:
    for sent in (b"", frame(TEXT, CREATE)[:9], frame(TEXT, CREATE), frame(TEXT, CREATE) + b"\x81"):
        async with opened(strict) as raw:
            raw.writer.write(sent)
            raw.writer.transport.abort()
    await until(lambda: not strict.state.sockets.total() and not strict.engine.live)


def test_a_message_in_fragments_takes_little_more_than_its_bytes() -> None:
    """A list of its parts would take fifty times as much."""
    socket = AbortableWebSocket.__new__(AbortableWebSocket)
    socket.handle_text(Frame(Opcode.TEXT, b"a", fin=False))
    for _ in range(1000):
        socket.handle_cont(Frame(Opcode.CONT, b"b", fin=False))
    assert socket.frames == [b"a" + 1000 * b"b"]


def test_frames_without_data_are_parsed_some_in_a_turn() -> None:
    """Thousands fit into what is read at once, and would hold up all other connections."""
    later = list[Callable[[], None]]()
    socket, parsed, reading = AbortableWebSocket.__new__(AbortableWebSocket), bytearray(), [True]
    socket.read_paused = False
    socket.loop = cast("Any", SimpleNamespace(call_soon=later.append))
    socket.transport = cast(
        "Any",
        SimpleNamespace(
            pause_reading=lambda: reading.append(False),
            resume_reading=lambda: reading.append(True),
            is_closing=lambda: False,
        ),
    )
    socket.parse = cast("Any", parsed.extend)
    data = random.Random(1).randbytes(5 * PARSED_BYTES + 7)
    socket.data_received(data[:-7])
    assert len(parsed) == PARSED_BYTES and not reading[-1]
    socket.data_received(data[-7:])
    turns = 0
    while later:
        assert not reading[-1]
        before, turns = len(parsed), turns + 1
        later.pop()()
        assert len(parsed) - before <= PARSED_BYTES
    assert (bytes(parsed), turns, reading[-1]) == (data, 5, True)
    socket.data_received(b"again")
    assert parsed.endswith(b"again") and not later


async def test_others_are_served_while_one_sends_empty_fragments(strict: Served) -> None:
    async with asyncio.timeout(DEADLINE_S), opened(strict) as raw, opened(strict) as other:
        raw.writer.write(frame(TEXT, b"{", last=False) + frame(0, last=False) * 50_000)
        other.writer.write(frame(TEXT, CREATE))
        assert await other.code() is KEPT
        raw.writer.write(frame(0, CREATE[1:]))
        assert await raw.code() is KEPT
