"""Blocks that other servers have: known by what those say they hold, and fetched by name.

Every fault is a miss: a peer that is gone, slow or of another model, a record that is cut or
altered. A peer with a fault is not asked again for a moment. Fetching holds up its thread alone.
"""

import socket
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from threading import Lock
from time import monotonic, perf_counter
from typing import NamedTuple, Protocol

from draftwerk.cache.store.disk import StoreStats
from draftwerk.cache.store.peer_session import (
    DOOR_HELLO_BYTES,
    PROOF_BYTES,
    AskerHandshake,
    PeerIdentity,
    PeerRefusedError,
    PeerSession,
    address_bytes,
)
from draftwerk.cache.store.peer_wire import (
    ANSWER_BYTES,
    ASKED_MAX,
    NAMES_MAX,
    check_answer,
    message,
    read_head,
)

FETCH_S = 0.5
"""For a peer to answer anything."""
PAUSE_S = 1.0
"""After a fault of a peer."""
REPLICAS = "replicas"
"""In the place of addresses: a cluster tells them."""
IDLE_MAX = 4
"""Connections to a peer that are kept open: of those that fetch at once."""


class Wire(Protocol):
    """The part of a socket that fetching uses; every fault is an OSError."""

    def sendall(self, data: bytes, /) -> None: ...

    def recv_into(self, buffer: memoryview, /) -> int: ...

    def close(self) -> None: ...


@dataclass(slots=True, eq=False)
class PeerConnection:
    """A greeted connection to a door that blocks are fetched over; every fault is an OSError."""

    wire: Wire
    session: PeerSession
    fingerprint: bytes

    def ask(self, names: Sequence[bytes]) -> None:
        """Ask for blocks, ASKED_MAX at most; their answers come in this order."""
        self.wire.sendall(message(self.session.own, b"".join(names)))

    def answer(self, name: bytes, size: int) -> bytearray | None:
        """Return the next block, which has this name; None if the peer lacks it."""
        head = read_head(received(self.wire, ANSWER_BYTES), size)
        data = received(self.wire, head.size)
        check_answer(self.session.other, self.fingerprint, name, head, data)
        return data if head.is_found else None

    def close(self) -> None:
        """Close it."""
        self.wire.close()


class PeerAddress(NamedTuple):
    """Where a peer's door is."""

    host: str
    port: int

    @classmethod
    def read(cls, word: str) -> "PeerAddress":
        """Return the address that is written as HOST:PORT. Raises ValueError."""
        host, _, port = word.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
            raise ValueError(f"{word!r} is no HOST:PORT")
        return cls(host, int(port))


@dataclass(slots=True, eq=False)
class Peer:
    """Another server, as far as it is known here."""

    address: PeerAddress
    names: dict[bytes, None] = field(default_factory=dict[bytes, None])
    """The names of its blocks, in the order in which it told of them."""
    paused_until: float = float("-inf")
    idle: deque[PeerConnection] = field(default_factory=deque[PeerConnection])
    """Open connections that nobody uses."""

    def learn(self, added: Iterable[bytes], dropped: Iterable[bytes]) -> None:
        """Take in what changed there; of too many names the last are known."""
        for name in dropped:
            self.names.pop(name, None)
        self.names.update(dict.fromkeys(added))
        for name in [*islice(self.names, max(0, len(self.names) - NAMES_MAX))]:
            del self.names[name]

    def lose(self) -> None:
        """Forget what is known of it, and its connections."""
        self.names.clear()
        while self.idle:
            self.idle.pop().close()


@dataclass(slots=True)
class PeerRecords:
    """The records of all peers."""

    peers: list[Peer]
    """Changed by the event loop alone, and read on any thread."""
    connect: Callable[[PeerAddress], PeerConnection]
    """Opens a greeted connection. Raises OSError."""
    stats: StoreStats = field(default_factory=StoreStats)
    clock: Callable[[], float] = monotonic
    _lock: Lock = field(default_factory=Lock)

    def __contains__(self, name: bytes) -> bool:
        """Whether a peer has said that it holds the block."""
        now = self.clock()
        return any(name in peer.names for peer in self.peers if peer.paused_until <= now)

    def __len__(self) -> int:
        return len({name for peer in self.peers for name in peer.names})

    @property
    def keeps(self) -> bool:
        """Whether it takes blocks: a peer asks for what it wants of this server."""
        return False

    @property
    def total_bytes(self) -> int:
        """Bytes that are kept here: none."""
        return 0

    def read_all(self, names: Sequence[bytes], size: int) -> list[bytearray | None]:
        """Return blocks' bytes, `size` each, None for those that could not be had."""
        begun, fetched = perf_counter(), dict[bytes, bytearray]()
        for peer in tuple(self.peers):
            wanted = [name for name in names if name not in fetched and name in peer.names]
            if wanted and peer.paused_until <= self.clock():
                self._fetch(peer, wanted, size, fetched)
        with self._lock:
            self.stats.hits += len(fetched)
            self.stats.misses += len(names) - len(fetched)
            self.stats.read_bytes += size * len(fetched)
            self.stats.load_ms += 1e3 * (perf_counter() - begun)
        return [fetched.get(name) for name in names]

    def write(self, name: bytes, data: bytes) -> bool:
        """Keep nothing."""
        return False

    def remove(self, name: bytes) -> None:
        """Ask for a block no more."""
        for peer in self.peers:
            peer.names.pop(name, None)

    def newest(self, count: int) -> list[bytes]:
        """Return nothing: what peers have is fetched when it is asked for."""
        return []

    def _fetch(
        self, peer: Peer, names: Sequence[bytes], size: int, fetched: dict[bytes, bytearray]
    ) -> None:
        """Ask one peer for blocks, and add those that come."""
        connection: PeerConnection | None = None
        try:
            connection = peer.idle.pop() if peer.idle else self.connect(peer.address)
            for place, name in enumerate(names):
                if place % ASKED_MAX == 0:
                    connection.ask(names[place : place + ASKED_MAX])
                data = connection.answer(name, size)
                if data is None:
                    peer.names.pop(name, None)
                else:
                    fetched[name] = data
        except OSError as error:
            peer.paused_until = self.clock() + PAUSE_S
            with self._lock:
                self.stats.refused += isinstance(error, PeerRefusedError)
            if connection is not None:
                connection.close()
            return
        peer.idle.append(connection)
        with suppress(IndexError):  # another thread was quicker
            while len(peer.idle) > IDLE_MAX:
                peer.idle.popleft().close()


def received(wire: Wire, size: int) -> bytearray:
    """Return so many bytes of a connection. Raises OSError where it ends before."""
    data = bytearray(size)
    view = memoryview(data)
    while view:
        count = wire.recv_into(view)
        if not count:
            raise ConnectionResetError("the peer has gone")
        view = view[count:]
    return data


def greeted(address: PeerAddress, identity: PeerIdentity) -> PeerConnection:
    """Return a connection to a peer's door that blocks are fetched over. Raises OSError."""
    wire = socket.create_connection(address, FETCH_S)
    try:
        wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        handshake = AskerHandshake(identity, "fetch", address_bytes(wire.getpeername()))
        wire.sendall(handshake.answer(bytes(received(wire, DOOR_HELLO_BYTES))))
        session = handshake.session(bytes(received(wire, PROOF_BYTES)))
        return PeerConnection(wire, session, identity.fingerprint)
    except BaseException:
        wire.close()
        raise
