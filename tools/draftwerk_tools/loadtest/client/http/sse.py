"""Server-sent events from bytes in any slicing: LF, CR or CRLF, comments, many-line data."""

from collections.abc import AsyncIterable, AsyncIterator

BOM = b"\xef\xbb\xbf"


class SSEParser:
    """Feed it what the socket gave; it returns the `data` of each event that is complete."""

    __slots__ = ("_after_cr", "_data", "_started", "_tail")

    def __init__(self) -> None:
        self._tail = b""
        self._data: list[bytes] = []
        self._after_cr = False
        self._started = False

    def feed(self, received: bytes) -> list[bytes]:
        if not received:
            return []
        # A CR that ended the last piece already ended its line; its LF may come only now.
        if self._after_cr and received.startswith(b"\n"):
            received = received[1:]
        self._after_cr = False
        return self._lines(self._tail + received)

    def close(self) -> list[bytes]:
        """Return the last event if its blank line never came."""
        return self.feed(b"\n\n") if self._tail or self._data else []

    def _lines(self, buffer: bytes) -> list[bytes]:
        if not self._started:
            if len(buffer) < len(BOM) and BOM.startswith(buffer):
                self._tail = buffer
                return []
            buffer, self._started = buffer.removeprefix(BOM), True
        lines = buffer.splitlines(keepends=True)
        self._tail = lines.pop() if lines and lines[-1][-1:] not in b"\r\n" else b""
        self._after_cr = not self._tail and bool(lines) and lines[-1].endswith(b"\r")
        events = (self._line(line.rstrip(b"\r\n")) for line in lines)
        return [event for event in events if event is not None]

    def _line(self, line: bytes) -> bytes | None:
        if not line:
            return self._dispatch()
        name, _, value = line.partition(b":")
        if name == b"data":
            self._data.append(value.removeprefix(b" "))
        return None

    def _dispatch(self) -> bytes | None:
        if not self._data:
            return None
        event, self._data = b"\n".join(self._data), []
        return event


async def sse_events(received: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """Yield the data of each event of a stream, the `[DONE]` that ends OpenAI's left out."""
    parser = SSEParser()
    async for piece in received:
        for event in parser.feed(piece):
            if event != b"[DONE]":
                yield event
    for event in parser.close():
        if event != b"[DONE]":
            yield event
