"""Bounded mailboxes: the only way from one actor to another.

Waiting happens at admission. Inside, each bound is derived from a limit above it, so a full mailbox
is a bug and `send_nowait` raises. A mailbox that has a histogram counts how long each message was
in it, its sender's wait for room included.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Generic, Self, TypeVar

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from draftwerk.actors.monitoring.histogram import Histogram

M = TypeVar("M")
Sent = TypeVar("Sent", contravariant=True)
Received = TypeVar("Received", covariant=True)


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
class Outbox(_End, Generic[Sent]):
    """Where messages go in, each with the time if its mailbox has a histogram."""

    _stream: MemoryObjectSendStream[tuple[float, Any]]
    _timed: bool

    def send_nowait(self, message: Sent) -> None:
        """Send; raises WouldBlock if full, ClosedResourceError or BrokenResourceError if closed."""
        self._stream.send_nowait((anyio.current_time() if self._timed else 0.0, message))

    async def send(self, message: Sent) -> None:
        """Send once there is room; where there is some, without a look at the event loop."""
        letter = anyio.current_time() if self._timed else 0.0, message
        try:
            self._stream.send_nowait(letter)
        except anyio.WouldBlock:
            await self._stream.send(letter)

    def close(self) -> None:
        """Let the reader come to the end."""
        self._stream.close()


@dataclass(slots=True, eq=False)
class Inbox(_End, Generic[Received]):
    """Where messages come out, in the order they went in."""

    _stream: MemoryObjectReceiveStream[tuple[float, Any]]
    _waits: Histogram | None

    async def receive(self) -> Received:
        """Wait for a message; raises EndOfStream behind the last one.

        A message that is there is taken without a turn of the event loop: a burst of them costs
        one turn, not one each.
        """
        try:
            return self.receive_nowait()
        except anyio.WouldBlock:
            return self._counted(await self._stream.receive())

    def receive_nowait(self) -> Received:
        """Return a message that is there; raises WouldBlock or EndOfStream."""
        return self._counted(self._stream.receive_nowait())

    @property
    def depth(self) -> int:
        """Messages that are there."""
        return self._stream.statistics().current_buffer_used

    def close(self) -> None:
        """Read no more; sending raises BrokenResourceError from here on."""
        self._stream.close()

    def _counted(self, letter: tuple[float, Received]) -> Received:
        sent, message = letter
        if self._waits is not None:
            self._waits.observe(anyio.current_time() - sent)
        return message

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
        sending, receiving = anyio.create_memory_object_stream[tuple[float, Any]](bound)
        return Outbox[M](sending, waits is not None), Inbox[M](receiving, waits)


class Port(Generic[M]):
    """Both ends of one mailbox."""

    def __init__(self, bound: int, waits: Histogram) -> None:
        self.outbox, self.inbox = mailbox[M](bound, waits)

    def close(self) -> None:
        self.outbox.close()
        self.inbox.close()


async def receive_all(inbox: Inbox[M]) -> list[M]:
    """Wait for one message, then take every other that is already there."""
    messages = [await inbox.receive()]
    while True:
        try:
            messages.append(inbox.receive_nowait())
        except (anyio.WouldBlock, anyio.EndOfStream):
            return messages
