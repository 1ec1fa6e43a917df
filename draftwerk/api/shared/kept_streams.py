"""Streams that outlive their connection: events are numbered, kept, and read again from any one.

The generation runs in a task of its own, which writes into the kept stream; the connection that
began it is one reader of it, and each later one another. What is kept for one API key is bounded in
number and in bytes.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from msgspec import Struct
from starlette.types import ASGIApp, Message, Scope

from draftwerk.api.shared.errors import ApiError, internal, response

STREAMS_MAX = 256
"""Streams kept for one API key; beyond it the oldest that has ended and has no reader goes."""
BYTES_MAX = 32 * 2**20
"""The most bytes of one key's events. Beyond it streams that have ended and have no reader go, the
oldest first; then the stream that has most loses the older half of its events."""
COMMENT = b":"
"""The beginning of an event that means nothing."""

log = logging.getLogger("draftwerk")


@dataclass(slots=True, eq=False)
class KeptStream:
    """The events of one stream, while they come and for a while after."""

    stream_id: str
    kept: "KeptStreams"
    kept_s: float
    """Seconds without a reader after which it is dropped, and its generation ended."""
    head: Message | None = None
    """Status and headers, once they are known."""
    events: list[bytes] = field(default_factory=list[bytes])
    """Each with its number; of a refused request the body, without."""
    first: int = 0
    """Number of the first event that is still kept."""
    size: int = 0
    """Bytes that are kept."""
    over: bool = False
    """Whether no event comes any more."""
    whole: bool = False
    """Whether it is over, and the last event came."""
    readers: int = 0
    on_cancel: Callable[[], Sequence[Struct]] | None = None
    """Returns the last events if its client calls it off, where the protocol has some."""
    so_far: Callable[[], Struct] | None = None
    """Returns what the reply has come to, where the protocol tells those who ask."""
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _task: asyncio.Task[None] | None = None
    _timer: asyncio.TimerHandle | None = None

    def begin(self, answer: ASGIApp, scope: Scope) -> None:
        """Start to take in all that an answer sends, for a client that never leaves."""
        self._task = asyncio.create_task(self._run(answer, scope))

    async def _run(self, answer: ASGIApp, scope: Scope) -> None:
        try:
            await answer(scope, _silence, self._take)
            self.whole = True
        except Exception:
            log.exception("id=%s a kept stream broke", scope.get("request_id"))
            if self.head is None:
                await response(internal(), scope)(scope, _silence, self._take)
        finally:
            self._end()

    async def _take(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.head = message
            return
        body: bytes = message.get("body", b"")
        if body and not body.startswith(COMMENT) and not self.over:
            self._add(body)

    def _add(self, body: bytes) -> None:
        number = b"" if self.is_refused else b"id: %d\n" % self.count
        self.events.append(number + body)
        self.size += len(self.events[-1])
        self.kept.grew(len(self.events[-1]))
        self._changed.set()

    def _end(self) -> None:
        self.over = True
        self._changed.set()
        if not self.readers and self._timer is None:  # it never had one
            self._keep(self.kept_s)

    def _keep(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self.drop)

    @property
    def count(self) -> int:
        """How many events came: the number of the next."""
        return self.first + len(self.events)

    @property
    def is_refused(self) -> bool:
        """Whether the request had an error before its first event."""
        return self.head is not None and self.head["status"] != 200

    @property
    def is_unread(self) -> bool:
        """Whether it has ended and has no reader."""
        return self.over and not self.readers

    def event(self, number: int) -> bytes | None:
        """Return an event that came; None if it is no longer kept."""
        return None if number < self.first else self.events[number - self.first]

    def forget_older(self) -> int:
        """Forget the older half of the events, and return its bytes; the last one stays."""
        count = len(self.events) // 2
        size = sum(map(len, self.events[:count]))
        del self.events[:count]
        self.first += count
        self.size -= size
        return size

    def enter(self) -> None:
        """Count a reader."""
        self.readers += 1
        if self._timer is not None:
            self._timer.cancel()

    def leave(self) -> None:
        """Count a reader out; without any the stream is kept for a while."""
        self.readers -= 1
        if not self.readers:
            self._keep(0.0 if self.is_refused else self.kept_s)

    def finish(self, last: Sequence[bytes]) -> None:
        """End the generation, with these as the last events; keep what came."""
        self._stop()
        for body in last:
            self._add(body)
        self.whole = True
        self._end()

    def drop(self) -> None:
        """End the generation, and forget what is kept of it; readers have no last event."""
        self._stop()
        self._end()
        if self._timer is not None:
            self._timer.cancel()
        self.kept.forget(self)

    def _stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def grown(self, seconds: float) -> bool:
        """Return whether anything came within some seconds."""
        self._changed.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return False
        return True


def stream_not_found(stream_id: str) -> ApiError:
    """Return the error for a stream that is not kept, or was ended."""
    said = f"The stream {stream_id[:80]!r} is not kept here."
    return ApiError(404, said, param="stream_id", code="stream_not_found")


async def _silence() -> Message:
    """Messages of a client that neither sends nor leaves: none comes."""
    return await asyncio.get_running_loop().create_future()


@dataclass(slots=True)
class KeptStreams:
    """The streams of one API key, by the id of their reply; the oldest first."""

    streams: dict[str, KeptStream] = field(default_factory=dict[str, KeptStream])
    size: int = 0
    """Bytes of all their events."""

    def begin(self, stream_id: str, kept_s: float, answer: ASGIApp, scope: Scope) -> KeptStream:
        """Start a stream. Raises ApiError if one of this id is kept, or there are too many."""
        if stream_id in self.streams:
            said = f"A stream {stream_id[:80]!r} is kept; send another X-Request-Id."
            raise ApiError(400, said, param="stream_options.resumable", code="invalid")
        if len(self.streams) >= STREAMS_MAX and not self._drop_unread():
            said = f"{STREAMS_MAX} resumable streams are under way; end one first."
            raise ApiError(429, said, code="too_many_streams")
        stream = self.streams[stream_id] = KeptStream(stream_id, self, kept_s)
        stream.begin(answer, scope)
        return stream

    def find(self, stream_id: str) -> KeptStream:
        """Return a stream. Raises ApiError if it is not kept."""
        found = self.streams.get(stream_id)
        if found is None:
            raise stream_not_found(stream_id)
        return found

    def forget(self, stream: KeptStream) -> None:
        """Keep a stream no longer."""
        if self.streams.get(stream.stream_id) is stream:
            del self.streams[stream.stream_id]
            self.size -= stream.size

    def grew(self, size: int) -> None:
        """Count bytes that came, and make room for them."""
        self.size += size
        while self.size > BYTES_MAX:
            if self._drop_unread():
                continue
            most = max(self.streams.values(), key=lambda each: each.size)
            forgotten = most.forget_older()
            if not forgotten:
                return
            self.size -= forgotten

    def check(self) -> None:
        """Assert that the bounds hold and the sizes add up."""
        assert len(self.streams) <= STREAMS_MAX
        assert self.size == sum(each.size for each in self.streams.values())
        assert self.size <= BYTES_MAX or all(len(each.events) < 2 for each in self.streams.values())

    def _drop_unread(self) -> bool:
        """Drop the oldest that has ended and has no reader; returns whether there was one."""
        unread = next((each for each in self.streams.values() if each.is_unread), None)
        if unread is not None:
            unread.drop()
        return unread is not None
