"""Keeps up with what peers hold: over a connection to its door each tells of changes."""

from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass
from secrets import token_bytes

import anyio
import msgspec
from anyio.abc import SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

from draftwerk.actors.tier_two.peer_door import LOST
from draftwerk.cache.store.peer_records import Peer, PeerAddress
from draftwerk.cache.store.peer_wire import (
    CHALLENGE_BYTES,
    HOLDINGS_MAX,
    LENGTH_BYTES,
    PROOF_BYTES,
    Holdings,
    PeerSecret,
    door_proof,
    greeting,
)

CONNECT_S = 3.0
SILENCE_S = 5.0
"""Without a sign of life a peer is given up."""
LOOK_S, RETRY_S = 1.0, 1.0
TAKE_OVER_S = 20.0
"""For the blocks of a peer that leaves; it waits no longer."""
DECODER = msgspec.msgpack.Decoder(Holdings)


@dataclass(slots=True, eq=False)
class PeerLinks:
    """Links to all peers, whether they are there or not."""

    peers: list[Peer]
    """Those that are followed."""
    addresses: Callable[[], Awaitable[Collection[PeerAddress]]]
    """Returns where peers are now."""
    secret: PeerSecret
    fingerprint: bytes
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
            except (*LOST, TimeoutError, msgspec.MsgspecError):
                pass
            finally:
                peer.lose()
            await anyio.sleep(RETRY_S)
        self.peers.remove(peer)

    async def _follow(self, peer: Peer, stream: SocketStream) -> None:
        inbox = BufferedByteReceiveStream(stream)
        with anyio.fail_after(CONNECT_S):
            challenge = await inbox.receive_exactly(CHALLENGE_BYTES)
            own = token_bytes(CHALLENGE_BYTES)
            answer = greeting(self.secret, "follow", self.fingerprint, challenge, own)
            await stream.send(answer.encode())
            if await inbox.receive_exactly(PROOF_BYTES) != door_proof(self.secret, own):
                return
        while True:
            with anyio.fail_after(SILENCE_S):
                size = int.from_bytes(await inbox.receive_exactly(LENGTH_BYTES), "little")
                if size > HOLDINGS_MAX:
                    return
                holdings = DECODER.decode(await inbox.receive_exactly(size))
            peer.learn(holdings.added, holdings.dropped)
            if holdings.is_leaving:
                with anyio.move_on_after(TAKE_OVER_S):
                    await self.take_over(peer.names).wait()
                return
