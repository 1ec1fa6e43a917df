"""Streamed texts whose parts are timed by the kernel: when they came, not when they were read.

Where the load and the server share cores, a client that waits for one sees a part late. The kernel
notes when each part reaches the socket, so what the client was late by is known and left out.
"""

import asyncio
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from time import perf_counter, time
from typing import Any
from urllib.parse import urlsplit

import msgspec

TIMESTAMPS = 35
"""SO_TIMESTAMPNS, which is also the type of the message that has the time."""
HEAD = (
    b"POST /v1/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\n"
    b"content-type: application/json\r\ncontent-length: %d\r\n\r\n"
)
READ_BYTES = 65536


class StreamedChoice(msgspec.Struct):
    """What a part says of a choice."""

    text: str = ""
    finish_reason: str | None = None


class StreamedPart(msgspec.Struct):
    """One event of a stream of completions."""

    choices: list[StreamedChoice] = []
    error: Any = None


@dataclass(slots=True)
class TimedText:
    """A text and the times of its parts, by `perf_counter`."""

    begun_s: float = 0.0
    came_s: list[float] = field(default_factory=list[float])
    """When they came, by the kernel; parts that were read at once came together."""
    read_s: list[float] = field(default_factory=list[float])
    """When this process read them."""
    ended: bool = False
    _head: bytes = b""
    _rest: bytes = b""

    def take(self, data: bytes, came_s: float) -> None:
        """Take in what came. Raises RuntimeError where the request was refused or failed."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if lines and not self._head:
            self._head = lines[0]
        if self._head and b" 200 " not in self._head:
            raise RuntimeError(f"the server refuses: {data.decode()}")
        has_text = False
        for line in lines:
            if line.startswith(b"data: {"):
                part = msgspec.json.decode(line[6:], type=StreamedPart)
                if part.error is not None:
                    raise RuntimeError(f"a text failed: {part.error}")
                has_text |= any(choice.text for choice in part.choices)
                self.ended |= any(choice.finish_reason for choice in part.choices)
        if has_text:
            self.came_s.append(came_s)
            self.read_s.append(perf_counter())


async def read_text(url: str, body: Mapping[str, Any], text: TimedText) -> None:
    """Ask for a completion and read it to its end. Raises RuntimeError where there is none."""
    loop, where = asyncio.get_running_loop(), urlsplit(url)
    with socket.socket() as connection:
        connection.setblocking(False)
        connection.setsockopt(socket.SOL_SOCKET, TIMESTAMPS, 1)
        await loop.sock_connect(connection, (where.hostname, where.port))
        sent = msgspec.json.encode({**body, "stream": True})
        text.begun_s = perf_counter()
        await loop.sock_sendall(connection, HEAD % len(sent) + sent)
        done = loop.create_future()
        loop.add_reader(connection, _read, connection, text, done)
        try:
            await done
        finally:
            loop.remove_reader(connection)
    if not text.ended:
        raise RuntimeError("a text has no end")


def _read(connection: socket.socket, text: TimedText, done: asyncio.Future[None]) -> None:
    try:
        data, told, _, _ = connection.recvmsg(READ_BYTES, socket.CMSG_SPACE(16))
        if data:
            text.take(data, _came_s(told))
        elif not done.done():
            done.set_result(None)
    except BlockingIOError:
        pass
    except Exception as error:
        if not done.done():
            done.set_exception(error)


def _came_s(told: list[tuple[int, int, bytes]]) -> float:
    """Return the kernel's time of what was read, by `perf_counter`; now if it has none."""
    now = perf_counter()
    for level, kind, data in told:
        if (level, kind) == (socket.SOL_SOCKET, TIMESTAMPS):
            seconds, nanoseconds = struct.unpack("qq", data)
            return now - (time() - seconds - 1e-9 * nanoseconds)
    return now
