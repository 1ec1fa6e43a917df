"""Keeps up with what peers hold: over a connection to its door each tells of changes."""

from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass

import anyio
from anyio.abc import SocketAttribute, SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

from draftwerk.actors.tier_two.peer_door import LOST
from draftwerk.cache.store.peer_records import Peer, PeerAddress
from draftwerk.cache.store.peer_session import (
    DOOR_HELLO_BYTES,
    PROOF_BYTES,
    AskerHandshake,
    PeerIdentity,
    PeerSession,
    address_bytes,
)
from draftwerk.cache.store.peer_wire import (
    LENGTH_BYTES,
    Holdings,
    message_size,
    opened,
    read_holdings,
)

CONNECT_S = 3.0
SILENCE_S = 5.0
"""Without a sign of life a peer is given up."""
LOOK_S, RETRY_S = 1.0, 1.0
TAKE_OVER_S = 20.0
"""For the blocks of a peer that leaves; it waits no longer."""


@dataclass(slots=True, eq=False)
class PeerLinks:
    """Links to all peers, whether they are there or not."""

    peers: list[Peer]
    """The peers that are followed."""
    addresses: Callable[[], Awaitable[Collection[PeerAddress]]]
    """Returns where peers are now."""
    identity: PeerIdentity
    take_over: Callable[[Iterable[bytes]], anyio.Event]
    """Has blocks of a peer that leaves fetched; what it returns is set once that is done."""
    _wanted: frozenset[PeerAddress] = frozenset()

    async def run(self) -> None:
        """Follow every peer until cancelled."""
        async with anyio.create_task_group() as links:
            while True:
                self._wanted = frozenset(await self.addresses())
                for address in self._wanted - {peer.address for peer in self.peers}:
                    self.peers.append(peer := Peer(address))
                    links.start_soon(self._keep, peer)
                await anyio.sleep(LOOK_S)

    async def _keep(self, peer: Peer) -> None:
        """Follow one peer, and look for it again whenever it has gone, while it is one.

        One that is about to end may be no peer any more: it is followed to its end.
        """
        while peer.address in self._wanted:
            try:
                with anyio.fail_after(CONNECT_S):
                    stream = await anyio.connect_tcp(*peer.address)
                async with stream:
                    await self._follow(peer, stream)
            except (*LOST, TimeoutError):
                pass
            finally:
                peer.lose()
            await anyio.sleep(RETRY_S)
        self.peers.remove(peer)

    async def _follow(self, peer: Peer, stream: SocketStream) -> None:
        inbox = BufferedByteReceiveStream(stream)
        with anyio.fail_after(CONNECT_S):
            dialled = address_bytes(stream.extra(SocketAttribute.remote_address))
            handshake = AskerHandshake(self.identity, "follow", dialled)
            await stream.send(handshake.answer(await inbox.receive_exactly(DOOR_HELLO_BYTES)))
            session = handshake.session(await inbox.receive_exactly(PROOF_BYTES))
        while True:
            with anyio.fail_after(SILENCE_S):
                holdings = await _told(inbox, session)
            peer.learn(holdings.added, holdings.dropped)
            if holdings.is_leaving:
                with anyio.move_on_after(TAKE_OVER_S):
                    await self.take_over(peer.names).wait()
                return


async def _told(inbox: BufferedByteReceiveStream, session: PeerSession) -> Holdings:
    """Return the next message about a peer's cache. Raises PeerRefusedError."""
    size = await inbox.receive_exactly(LENGTH_BYTES)
    data = await inbox.receive_exactly(message_size(size))
    return read_holdings(opened(session.other, size, data))
