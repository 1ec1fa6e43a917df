"""Where other servers learn which blocks this one has, and fetch them by name.

A block is copied between two steps of the event loop, while it has its name: what is named is
committed and not written to, and its block cannot be given to another text meanwhile.
"""

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from secrets import token_bytes
from typing import Protocol

import anyio
from anyio.abc import SocketAttribute, SocketListener, SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

from draftwerk.actors.devices.device import ThreadWorker, Worker
from draftwerk.cache.store.block_record import NAME_BYTES, RecordKey
from draftwerk.cache.store.peer_wire import (
    CHALLENGE_BYTES,
    FOUND,
    GREETING_BYTES,
    MISSING,
    Greeting,
    Holdings,
    PeerSecret,
    door_proof,
    encode_holdings,
    read_greeting,
)

GREETING_S = 5.0
"""For a connection to show that it is a peer's."""
REPORT_S = 0.1
"""Between two reports of what changed in the cache."""
SIGN_OF_LIFE = 10
"""Reports without a change, of which one is sent all the same."""
CONNECTIONS_MAX = 256
"""At once; a peer has one to follow and a few to fetch."""
BATCH = 8
"""Blocks copied in one step of the event loop: a megabyte or two."""
LOST = (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream,
        anyio.IncompleteRead, OSError)  # fmt: skip
"""Raised by streams whose other side has gone."""


class HeldContent(Protocol):
    """The part of `actors.engine.Engine` that the door uses."""

    def cached_names(self) -> Collection[bytes]: ...

    def block_content(self, name: bytes) -> bytes | None: ...


@dataclass(slots=True, eq=False)
class PeerDoor:
    """The connections of all peers."""

    held: HeldContent
    secret: PeerSecret
    fingerprint: bytes
    worker: Worker = field(default_factory=ThreadWorker)
    is_leaving: bool = False
    _followers: int = 0
    _places: anyio.Semaphore = field(default_factory=lambda: anyio.Semaphore(CONNECTIONS_MAX))
    _fewer: anyio.Event = field(default_factory=anyio.Event)

    async def run(self, listener: SocketListener) -> None:
        """Take connections until cancelled."""
        async with listener:
            while True:
                try:
                    await listener.serve(self._serve)
                except* OSError:  # too many open files, for a moment: the engine goes on
                    await anyio.sleep(REPORT_S)

    async def leave(self, limit_s: float) -> None:
        """Have peers fetch what they can take; returns once all have, or at the limit."""
        self.is_leaving = True
        with anyio.move_on_after(limit_s):
            while self._followers:
                self._fewer = anyio.Event()
                await self._fewer.wait()

    async def _serve(self, stream: SocketStream) -> None:
        async with self._places, stream:
            try:
                await self._answer(stream)
            except* LOST:
                pass  # the peer has gone, or this side has ended the connection

    async def _answer(self, stream: SocketStream) -> None:
        inbox, challenge = BufferedByteReceiveStream(stream), token_bytes(CHALLENGE_BYTES)
        asker: Greeting | None = None
        with anyio.move_on_after(GREETING_S):
            await stream.send(challenge)
            data = await inbox.receive_exactly(GREETING_BYTES)
            asker = read_greeting(self.secret, data, self.fingerprint, challenge)
        if asker is None:
            return
        await stream.send(door_proof(self.secret, asker.challenge))
        if asker.purpose == "fetch":
            await self._hand_over(inbox, stream)
        else:
            await self._report(stream)

    async def _report(self, stream: SocketStream) -> None:
        """Say what is here, and then what changes; a follower goes once it needs no more."""
        self._followers += 1
        try:
            async with anyio.create_task_group() as beside:
                beside.start_soon(self._until_gone, stream, beside.cancel_scope)
                await self._send_reports(stream)
        finally:
            self._followers -= 1
            self._fewer.set()

    async def _until_gone(self, stream: SocketStream, scope: anyio.CancelScope) -> None:
        with suppress(*LOST):
            await stream.receive()
        scope.cancel()

    async def _send_reports(self, stream: SocketStream) -> None:
        reported, silent, was_leaving = frozenset[bytes](), SIGN_OF_LIFE, False
        while True:
            held = self.held.cached_names()
            # In their order: a text's blocks one behind the other.
            added = tuple(name for name in held if name not in reported)
            dropped = tuple(name for name in reported if name not in held)
            reported, silent = frozenset(held), silent + 1
            if added or dropped or silent > SIGN_OF_LIFE or self.is_leaving > was_leaving:
                silent, was_leaving = 0, self.is_leaving
                await stream.send(encode_holdings(Holdings(added, dropped, self.is_leaving)))
            await anyio.sleep(REPORT_S)

    async def _hand_over(self, inbox: BufferedByteReceiveStream, stream: SocketStream) -> None:
        """Answer each name with its block, in turn, until the peer goes."""
        while True:
            data = await inbox.receive_exactly(NAME_BYTES)
            data += await inbox.receive_exactly(len(inbox.buffer) // NAME_BYTES * NAME_BYTES)
            names = [data[at : at + NAME_BYTES] for at in range(0, len(data), NAME_BYTES)]
            for at in range(0, len(names), BATCH):
                for answer in await self._answers(names[at : at + BATCH]):
                    await stream.send(answer)

    async def _answers(self, names: Sequence[bytes]) -> list[bytes]:
        copies = [(name, self.held.block_content(name)) for name in names]
        return await self.worker.run(lambda: [self._answer_of(*each) for each in copies])

    def _answer_of(self, name: bytes, content: bytes | None) -> bytes:
        if content is None:
            return MISSING
        return b"".join((FOUND, RecordKey(self.fingerprint, name).header(content), content))


async def listen(host: str, port: int) -> SocketListener:
    """Return what listens on an address. Raises OSError."""
    listener = await anyio.create_tcp_listener(local_host=host, local_port=port)
    first = listener.listeners[0]
    assert isinstance(first, SocketListener)
    return first


def port_of(listener: SocketListener) -> int:
    """Return the port that a listener has."""
    return listener.extra(SocketAttribute.local_port)
