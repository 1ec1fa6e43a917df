"""Where other servers learn which blocks this one has, and fetch them by name.

A block is copied between two steps of the event loop, while it has its name: what is named is
committed and not written to, and its block cannot be given to another text meanwhile.
"""

import logging
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

import anyio
from anyio.abc import SocketAttribute, SocketListener, SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

from draftwerk.actors.devices.device import ThreadWorker, Worker
from draftwerk.cache.store.peer_session import (
    ASKER_HELLO_BYTES,
    DoorHandshake,
    OtherAddressError,
    PeerIdentity,
    PeerSession,
    address_bytes,
)
from draftwerk.cache.store.peer_wire import (
    LENGTH_BYTES,
    answer,
    holdings_messages,
    message_size,
    names_of,
    opened,
)

GREETING_S = 5.0
"""For a connection to show that it is a peer's."""
REPORT_S = 0.1
"""Between two reports of what changed in the cache."""
SIGN_OF_LIFE = 10
"""Reports without a change, of which one is sent all the same."""
CONNECTIONS_MAX = 256
"""The most connections of peers at once; each has one to follow and a few to fetch."""
STRANGERS_MAX = 64
"""Connections at once that have not shown yet that they are a peer's: of more, the oldest ends."""
BATCH = 8
"""Blocks copied in one step of the event loop: a megabyte or two."""
LOST = (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream,
        anyio.IncompleteRead, OSError)  # fmt: skip
"""Raised by streams whose other side has gone."""

log = logging.getLogger("draftwerk")


class HeldContent(Protocol):
    """The part of `actors.tier_two.tier_two_actors.TierTwoStores` that the door uses."""

    def cached_names(self) -> Collection[bytes]: ...

    def block_content(self, name: bytes) -> bytes | None: ...


@dataclass(slots=True, eq=False)
class PeerServer:
    """The connections of all peers."""

    held: HeldContent
    identity: PeerIdentity
    worker: Worker = field(default_factory=ThreadWorker)
    is_leaving: bool = False
    _followers: int = 0
    _has_warned: bool = False
    _peers: int = 0
    """Connections that are."""
    _strangers: dict[anyio.CancelScope, None] = field(default_factory=dict[anyio.CancelScope, None])
    _fewer: anyio.Event = field(default_factory=anyio.Event)

    @property
    def strangers(self) -> int:
        """Connections that have not shown yet that they are a peer's."""
        return len(self._strangers)

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
        async with stream:
            try:
                await self._answer(stream)
            except* LOST:
                pass  # the peer has gone, or this side has ended the connection

    async def _answer(self, stream: SocketStream) -> None:
        inbox = BufferedByteReceiveStream(stream)
        here = address_bytes(stream.extra(SocketAttribute.local_address))
        handshake = DoorHandshake(self.identity, here)
        session = await self._greeted(handshake, inbox, stream)
        if session is None or self._peers >= CONNECTIONS_MAX:
            return
        self._peers += 1
        try:
            if handshake.purpose == "fetch":
                await self._hand_over(inbox, stream, session)
            else:
                await self._report(stream, session)
        finally:
            self._peers -= 1

    async def _greeted(
        self, handshake: DoorHandshake, inbox: BufferedByteReceiveStream, stream: SocketStream
    ) -> PeerSession | None:
        """Return the session of a peer; None for one that takes too long. Raises OSError for one
        that is none."""
        with anyio.move_on_after(GREETING_S) as scope:
            self._strangers[scope] = None
            if len(self._strangers) > STRANGERS_MAX:
                next(iter(self._strangers)).cancel()
            try:
                await stream.send(handshake.hello)
                data = await inbox.receive_exactly(ASKER_HELLO_BYTES)
                proof, session = handshake.accept(data)
                await stream.send(proof)
                return session
            except OtherAddressError as error:
                if not self._has_warned:
                    self._has_warned = True
                    log.warning("a peer is refused: %s, and none may be translated", error)
            finally:
                del self._strangers[scope]
        return None

    async def _report(self, stream: SocketStream, session: PeerSession) -> None:
        """Say what is here, and then what changes; a follower goes once it needs no more."""
        self._followers += 1
        try:
            async with anyio.create_task_group() as beside:
                beside.start_soon(self._until_gone, stream, beside.cancel_scope)
                await self._send_reports(stream, session)
        finally:
            self._followers -= 1
            self._fewer.set()

    async def _until_gone(self, stream: SocketStream, scope: anyio.CancelScope) -> None:
        with suppress(*LOST):
            await stream.receive()
        scope.cancel()

    async def _send_reports(self, stream: SocketStream, session: PeerSession) -> None:
        reported, silent, was_leaving = frozenset[bytes](), SIGN_OF_LIFE, False
        while True:
            held = self.held.cached_names()
            # In their order: a text's blocks one behind the other.
            added = tuple(name for name in held if name not in reported)
            dropped = tuple(name for name in reported if name not in held)
            reported, silent = frozenset(held), silent + 1
            if added or dropped or silent > SIGN_OF_LIFE or self.is_leaving > was_leaving:
                silent, was_leaving = 0, self.is_leaving
                for each in holdings_messages(session.own, added, dropped, self.is_leaving):
                    await stream.send(each)
            await anyio.sleep(REPORT_S)

    async def _hand_over(
        self, inbox: BufferedByteReceiveStream, stream: SocketStream, session: PeerSession
    ) -> None:
        """Answer each name with its block, in turn, until the peer goes."""
        while True:
            size = await inbox.receive_exactly(LENGTH_BYTES)
            data = await inbox.receive_exactly(message_size(size))
            names = names_of(opened(session.other, size, data))
            for at in range(0, len(names), BATCH):
                for each in await self._answers(names[at : at + BATCH], session):
                    await stream.send(each)

    async def _answers(self, names: Sequence[bytes], session: PeerSession) -> list[bytes]:
        copies = [(name, self.held.block_content(name)) for name in names]
        seal, model = session.own, self.identity.fingerprint
        return await self.worker.run(lambda: [answer(seal, model, *each) for each in copies])


async def listen(host: str, port: int) -> SocketListener:
    """Return what listens on an address. Raises OSError."""
    listener = await anyio.create_tcp_listener(local_host=host, local_port=port)
    first = listener.listeners[0]
    assert isinstance(first, SocketListener)
    return first


def port_of(listener: SocketListener) -> int:
    """Return the port that a listener has."""
    return listener.extra(SocketAttribute.local_port)
