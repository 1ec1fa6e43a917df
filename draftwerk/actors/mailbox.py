"""Bounded mailboxes: the only way from one actor to another.

Waiting happens at admission. Inside, each bound is derived from a limit above it, so a full mailbox
is a bug and `send_nowait` raises. A mailbox that has a histogram counts how long each message was
in it, its sender's wait for room included.
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
    """The messages in a mailbox, and those who wait at its ends.

    anyio's memory streams ask the event loop for a turn before they wait, and note who waits: at
    a message for each stream and round, that was an eighth of what an event cost.
    """

    bound: int
    messages: deque[Stamped] = field(default_factory=deque[Stamped])
    receivers: deque[anyio.Event] = field(default_factory=deque[anyio.Event])
    """Events of those who wait for a message, to be woken in turn."""
    senders: deque[tuple[anyio.Event, Stamped]] = field(
        default_factory=deque[tuple[anyio.Event, Stamped]]
    )
    """Events of those who wait for room, each with its message."""
    waking: int = 0
    """Receivers that were woken and have not run yet: each has a place for a message."""
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
        # The one that is woken has not run yet: until it does, its message does not count against
        # the bound.
        if self.receivers:
            self.waking += 1
            self.receivers.popleft().set()
        elif len(self.messages) >= self.bound + self.waking:
            raise anyio.WouldBlock
        self.messages.append(stamped)

    def take(self) -> Stamped:
        """Return the oldest message; raises what `Inbox.receive_nowait` does, if that is closed."""
        if not self.is_read:
            raise anyio.ClosedResourceError
        if self.messages:
            stamped = self.messages.popleft()
            self.let_in()
            return stamped
        if self.senders:  # without room for a single message
            room, stamped = self.senders.popleft()
            room.set()
            return stamped
        raise anyio.WouldBlock if self.is_written else anyio.EndOfStream

    def let_in(self) -> None:
        """Take in messages that wait for room, as far as there is some."""
        while self.senders and len(self.messages) < self.bound + self.waking:
            room, stamped = self.senders.popleft()
            self.messages.append(stamped)
            room.set()

    async def arrival(self) -> None:
        """Wait until a message may be there, or no more can come."""
        arrived = self.make_event()
        self.receivers.append(arrived)
        try:
            await arrived.wait()
        except BaseException:
            if arrived.is_set() and self.messages and self.receivers:
                self.waking += 1
                self.receivers.popleft().set()  # what was for this one is for the next
            raise
        finally:
            if arrived.is_set():
                self.waking -= 1
            else:
                self.receivers.remove(arrived)

    async def room(self, stamped: Stamped) -> None:
        """Wait until a message has been taken in; raises what `put` does."""
        taken = anyio.Event()
        self.senders.append((taken, stamped))
        try:
            await taken.wait()
        finally:
            # Still there, though woken: an end was closed, and the message was never taken in.
            if left := (taken, stamped) in self.senders:
                self.senders.remove((taken, stamped))
        if left:
            raise anyio.BrokenResourceError if self.is_written else anyio.ClosedResourceError

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

    def wake_all(self) -> None:
        """Let everybody see that an end was closed."""
        while self.receivers:
            self.waking += 1
            self.receivers.popleft().set()
        # They stay in the queue, by which each sees that its message was not taken in.
        for taken, _ in self.senders:
            taken.set()


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
        try:
            self._queue.put(stamped)
        except anyio.WouldBlock:
            await self._queue.room(stamped)

    def close(self) -> None:
        """Let the reader come to the end."""
        self._queue.is_written = False
        self._queue.wake_all()


@dataclass(slots=True, eq=False)
class Inbox(_End, Generic[Received]):
    """Where messages come out, in the order they went in."""

    _queue: MailboxQueue
    _waits: Histogram | None

    async def receive(self) -> Received:
        """Wait for a message; raises EndOfStream behind the last one.

        A message that is there is taken without a turn of the event loop: a burst of them costs
        one turn, not one each.
        """
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
        self._queue.wake_all()

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
