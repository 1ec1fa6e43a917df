"""Bounded mailboxes: the only way from one actor to another.

Waiting happens at admission, and for the detokenizer and the ledger. Each other bound is derived
from a limit above it, so a full mailbox is a bug and `send_nowait` raises. One task reads one, and
one may wait for room. A histogram counts how long each message was in it, with that wait.
"""

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, Self, TypeVar

import anyio

from draftwerk.actors.monitoring.histogram import Histogram

M = TypeVar("M")
Sent = TypeVar("Sent", contravariant=True)
Received = TypeVar("Received", covariant=True)
Stamped = tuple[float, Any]
"""When a message was sent, 0.0 where nothing counts that, and the message."""


class _End(ABC):
    """One end of a mailbox; leaving a `with` closes it."""

    __slots__ = ()

    @abstractmethod
    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


@dataclass(slots=True, eq=False)
class MailboxQueue:
    """The messages in a mailbox, and the tasks that wait at its ends: one at each."""

    # anyio's memory streams ask the event loop for a turn before they wait, and note who waits: at
    # a message for each stream and round, that was an eighth of what an event cost.

    bound: int
    messages: deque[Stamped] = field(default_factory=deque[Stamped])
    reader: anyio.Event | None = None
    """Event of a task that waits for a message, until that runs again."""
    writer: anyio.Event | None = None
    """Event of a task that waits for room."""
    is_written: bool = True
    is_read: bool = True
    """Whether the ends are open."""
    clock: Callable[[], float] = field(init=False)
    make_event: Callable[[], anyio.Event] = field(init=False)

    def __post_init__(self) -> None:
        # Both are asked for once there is an event loop, which stays: no message looks it up.
        self.clock, self.make_event = self._first_time, self._first_event

    def put(self, stamped: Stamped) -> None:
        """Add a message; raises what `Outbox.send_nowait` does."""
        if not self.is_written:
            raise anyio.ClosedResourceError
        if not self.is_read:
            raise anyio.BrokenResourceError
        # Who waits for a message has a place for it until it runs.
        if len(self.messages) >= self.bound + (self.reader is not None):
            raise anyio.WouldBlock
        self.messages.append(stamped)
        if self.reader is not None:
            self.reader.set()

    def take(self) -> Stamped:
        """Return the oldest message; raises what `Inbox.receive_nowait` does, if that is closed."""
        if not self.is_read:
            raise anyio.ClosedResourceError
        if not self.messages:
            raise anyio.WouldBlock if self.is_written else anyio.EndOfStream
        if self.writer is not None:
            self.writer.set()
        return self.messages.popleft()

    async def arrival(self) -> None:
        """Wait until a message may be there, or no more can come."""
        assert self.reader is None, "two tasks read one mailbox"
        self.reader = self.make_event()
        try:
            await self.reader.wait()
        finally:
            self.reader = None

    async def room(self) -> None:
        """Wait until there may be room, or an end is closed."""
        assert self.writer is None, "two tasks wait for room in one mailbox"
        self.writer = self.make_event()
        try:
            await self.writer.wait()
        finally:
            self.writer = None

    def wake(self) -> None:
        """Let those who wait see that an end was closed."""
        for event in (self.reader, self.writer):
            if event is not None:
                event.set()

    def _first_event(self) -> anyio.Event:
        """Make an event; those after it need not ask which event loop runs."""
        event = anyio.Event()
        self.make_event = type(event)
        return event

    def _first_time(self) -> float:
        """Return the time; the event loop's own clock tells it from then on."""
        try:
            self.clock = asyncio.get_running_loop().time
        except RuntimeError:  # another library's
            self.clock = anyio.current_time
        return self.clock()


@dataclass(slots=True, eq=False)
class Outbox(_End, Generic[Sent]):
    """Where messages go in, each with the time if its mailbox has a histogram."""

    _queue: MailboxQueue
    _timed: bool

    def send_nowait(self, message: Sent) -> None:
        """Send; raises WouldBlock if full, ClosedResourceError or BrokenResourceError if closed."""
        self._queue.put((self._queue.clock() if self._timed else 0.0, message))

    async def send(self, message: Sent) -> None:
        """Send once there is room; where there is some, without a look at the event loop."""
        stamped = self._queue.clock() if self._timed else 0.0, message
        while True:
            try:
                return self._queue.put(stamped)
            except anyio.WouldBlock:
                await self._queue.room()

    def close(self) -> None:
        """Let the reader come to the end."""
        self._queue.is_written = False
        self._queue.wake()


@dataclass(slots=True, eq=False)
class Inbox(_End, Generic[Received]):
    """Where messages come out, in the order they went in."""

    _queue: MailboxQueue
    _waits: Histogram | None

    async def receive(self) -> Received:
        """Wait for a message; raises EndOfStream behind the last one."""
        # One that is there is taken without a turn of the event loop: a burst costs one turn.
        while True:
            try:
                return self.receive_nowait()
            except anyio.WouldBlock:
                await self._queue.arrival()

    def receive_nowait(self) -> Received:
        """Return a message that is there; raises WouldBlock or EndOfStream."""
        sent, message = self._queue.take()
        if self._waits is not None:
            self._waits.observe(self._queue.clock() - sent)
        return message

    @property
    def depth(self) -> int:
        """Messages that are there."""
        return len(self._queue.messages)

    def close(self) -> None:
        """Read no more; sending raises BrokenResourceError from here on."""
        self._queue.is_read = False
        self._queue.wake()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Received:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None


class mailbox(tuple[Outbox[M], Inbox[M]]):
    """`mailbox[Message](bound, waits)` makes both ends; `waits`, in seconds, may be left out."""

    def __new__(  # pyright: ignore[reportInconsistentConstructor]
        cls, bound: int, waits: Histogram | None = None
    ) -> tuple[Outbox[M], Inbox[M]]:
        queue = MailboxQueue(bound)
        return Outbox[M](queue, waits is not None), Inbox[M](queue, waits)


async def receive_all(inbox: Inbox[M]) -> list[M]:
    """Wait for one message, then take every other that is already there."""
    messages = [await inbox.receive()]
    while True:
        try:
            messages.append(inbox.receive_nowait())
        except (anyio.WouldBlock, anyio.EndOfStream):
            return messages
