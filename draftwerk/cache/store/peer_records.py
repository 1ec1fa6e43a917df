"""Blocks that other servers have: known by what those say they hold, and fetched by name.

Every fault is a miss: a peer that is gone, slow or of another model, a record that is cut or
altered. A peer with a fault is not asked again for a moment. Fetching holds up its thread alone.
"""

import socket
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from secrets import token_bytes
from threading import Lock
from time import monotonic, perf_counter
from typing import NamedTuple, Protocol

from draftwerk.cache.store.block_record import HEADER_BYTES, RecordKey
from draftwerk.cache.store.disk import StoreStats
from draftwerk.cache.store.peer_wire import (
    CHALLENGE_BYTES,
    FOUND,
    MISSING,
    PROOF_BYTES,
    PeerSecret,
    door_proof,
    greeting,
)

FETCH_S = 0.5
"""For a peer to answer anything."""
PAUSE_S = 1.0
"""After a fault of a peer."""
REPLICAS = "replicas"
"""In the place of addresses: a cluster tells them."""
IDLE_MAX = 4
"""Connections to a peer that are kept open: of those that fetch at once."""


class RefusedRecordError(OSError):
    """A record is cut, altered or another's."""


class Wire(Protocol):
    """The part of a socket that fetching uses; every fault is an OSError."""

    def sendall(self, data: bytes, /) -> None: ...

    def recv_into(self, buffer: memoryview, /) -> int: ...

    def close(self) -> None: ...


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
    """Of its blocks, in the order in which it told of them."""
    paused_until: float = float("-inf")
    idle: deque[Wire] = field(default_factory=deque[Wire])
    """Open connections that nobody uses."""

    def learn(self, added: Iterable[bytes], dropped: Iterable[bytes]) -> None:
        """Take in what changed there."""
        for name in dropped:
            self.names.pop(name, None)
        self.names.update(dict.fromkeys(added))

    def lose(self) -> None:
        """Forget what is known of it, and its connections."""
        self.names.clear()
        while self.idle:
            self.idle.pop().close()


@dataclass(slots=True)
class PeerRecords:
    """The records of all peers, under one fingerprint."""

    peers: list[Peer]
    """Changed by the event loop alone, and read on any thread."""
    fingerprint: bytes
    connect: Callable[[PeerAddress], Wire]
    """Opens a greeted connection. Raises OSError."""
    stats: StoreStats = field(default_factory=StoreStats)
    clock: Callable[[], float] = monotonic
    _lock: Lock = field(default_factory=Lock)

    def __contains__(self, name: bytes) -> bool:
        """Whether a peer has said that it holds the block."""
        now = self.clock()
        return any(name in each.names for each in self.peers if each.paused_until <= now)

    def __len__(self) -> int:
        return len({name for each in self.peers for name in each.names})

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
        begun, found = perf_counter(), dict[bytes, bytearray]()
        for peer in tuple(self.peers):
            wanted = [name for name in names if name not in found and name in peer.names]
            if wanted and peer.paused_until <= self.clock():
                self._fetch(peer, wanted, size, found)
        with self._lock:
            self.stats.hits += len(found)
            self.stats.misses += len(names) - len(found)
            self.stats.read_bytes += size * len(found)
            self.stats.load_ms += 1e3 * (perf_counter() - begun)
        return [found.get(name) for name in names]

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
        self, peer: Peer, names: Sequence[bytes], size: int, found: dict[bytes, bytearray]
    ) -> None:
        """Ask one peer for blocks, and add those that come."""
        wire: Wire | None = None
        try:
            wire = peer.idle.pop() if peer.idle else self.connect(peer.address)
            wire.sendall(b"".join(names))
            for name in names:
                data = _received(wire, RecordKey(self.fingerprint, name), size)
                if data is None:
                    peer.names.pop(name, None)
                else:
                    found[name] = data
        except OSError as error:
            peer.paused_until = self.clock() + PAUSE_S
            with self._lock:
                self.stats.refused += isinstance(error, RefusedRecordError)
            if wire is not None:
                wire.close()
            return
        peer.idle.append(wire)
        with suppress(IndexError):  # another thread was quicker
            while len(peer.idle) > IDLE_MAX:
                peer.idle.popleft().close()


def _received(wire: Wire, key: RecordKey, size: int) -> bytearray | None:
    """Return the next block on a connection, None if the peer lacks it. Raises OSError."""
    answer = bytes(received(wire, 1))
    if answer == MISSING:
        return None
    if answer != FOUND:
        raise RefusedRecordError("an answer of another protocol")
    header, data = received(wire, HEADER_BYTES), received(wire, size)
    if bytes(header) != key.header(data):
        raise RefusedRecordError("a record was cut, altered or is another's")
    return data


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


def greeted(address: PeerAddress, secret: PeerSecret, fingerprint: bytes) -> socket.socket:
    """Return a connection to a peer's door that blocks are fetched over. Raises OSError."""
    wire = socket.create_connection(address, FETCH_S)
    try:
        wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        challenge, own = bytes(received(wire, CHALLENGE_BYTES)), token_bytes(CHALLENGE_BYTES)
        wire.sendall(greeting(secret, "fetch", fingerprint, challenge, own).encode())
        if bytes(received(wire, PROOF_BYTES)) != door_proof(secret, own):
            raise RefusedRecordError("the door does not know the secret")
    except BaseException:
        wire.close()
        raise
    return wire
