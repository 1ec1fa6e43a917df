"""Peers of a simulated server: what they hold, and connections that break off, hang or lie."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from struct import Struct

import anyio

from draftwerk.cache.store.peer_records import Peer, PeerAddress, PeerConnection, PeerRecords
from draftwerk.cache.store.peer_session import PeerSession, Seal
from draftwerk.cache.store.peer_wire import LENGTH_BYTES, answer, names_of, opened
from tests.support.toy import Cell

FINGERPRINT = b"f" * 16
CELL = Struct("<qq")
PIECE = 37
"""Bytes that a connection delivers at once, at most."""


@dataclass
class MortalWire:
    """A connection to a peer; some end in the midst of a block, and some alter a byte."""

    kept: dict[bytes, list[Cell]]
    rng: random.Random
    chance: float
    """Of a fault, for each block."""
    answers: bytearray = field(default_factory=bytearray)
    fault: str = ""
    is_closed: bool = False
    door: PeerSession = field(default_factory=lambda: PeerSession(Seal(b"door"), Seal(b"asker")))
    """What the peer marks its answers with."""

    def greeted(self, fingerprint: bytes = FINGERPRINT) -> PeerConnection:
        """Return this side of the connection."""
        return PeerConnection(self, PeerSession(Seal(b"asker"), Seal(b"door")), fingerprint)

    def sendall(self, data: bytes, /) -> None:
        assert not self.is_closed, "a closed connection is used again"
        size, rest = data[:LENGTH_BYTES], data[LENGTH_BYTES:]
        for name in names_of(opened(self.door.other, size, rest)):
            if self.fault == "killed":
                return
            self._answer(name)

    def recv_into(self, buffer: memoryview, /) -> int:
        count = min(len(buffer), len(self.answers), self.rng.randint(1, PIECE))
        if not count and self.rng.random() < 0.5:
            raise TimeoutError
        buffer[:count] = self.answers[:count]
        del self.answers[:count]
        return count

    def close(self) -> None:
        self.is_closed = True

    def _answer(self, name: bytes) -> None:
        cells = self.kept.get(name)
        data = None if cells is None else b"".join(CELL.pack(*cell) for cell in cells)
        said = bytearray(answer(self.door.own, FINGERPRINT, name, data))
        if self.rng.random() < self.chance:
            self.fault = self.rng.choice(["killed", "killed", "altered"])
            at = self.rng.randrange(len(said))
            if self.fault == "killed":
                del said[at:]
            else:
                said[at] ^= 1 << self.rng.randrange(8)
        self.answers += said


@dataclass
class ToyPeers:
    """Tier two over the toy's pages, of two peers that hold the same."""

    pages: list[Cell]
    block_size: int
    rng: random.Random
    kept: dict[bytes, list[Cell]]
    chance: float
    records: PeerRecords = field(init=False)
    wires: list[MortalWire] = field(default_factory=list[MortalWire])
    keeps: bool = False

    def __post_init__(self) -> None:
        peers = [Peer(PeerAddress("peer", port)) for port in (1, 2)]
        self.records = PeerRecords(peers, self._connect, clock=anyio.current_time)
        for peer in peers:
            peer.learn(self.kept, ())

    def _connect(self, address: PeerAddress) -> PeerConnection:
        wire = MortalWire(self.kept, self.rng, self.chance)
        self.wires.append(wire)
        return wire.greeted()

    @property
    def size(self) -> int:
        return self.block_size * CELL.size

    def __contains__(self, name: bytes) -> bool:
        return name in self.records

    def load(self, names: Sequence[bytes]) -> list[list[Cell] | None]:
        found = self.records.read_all(names, self.size)
        if self.rng.random() < 0.1 and self.kept:  # evicted there, and not yet said so
            del self.kept[self.rng.choice([*self.kept])]
        return [None if data is None else [*CELL.iter_unpack(data)] for data in found]

    def keep(self, name: bytes, content: list[Cell]) -> bool:
        raise AssertionError("peers keep nothing")

    def remove(self, name: bytes) -> None:
        self.records.remove(name)

    def copy(self, block: int) -> list[Cell]:
        return self.pages[block * self.block_size : (block + 1) * self.block_size]

    def put(self, block: int, content: list[Cell]) -> None:
        self.pages[block * self.block_size : (block + 1) * self.block_size] = content

    def newest(self, count: int) -> list[bytes]:
        return self.records.newest(count)

    def counters(self) -> dict[str, float]:
        killed = sum(wire.fault == "killed" for wire in self.wires)
        altered = sum(wire.fault == "altered" for wire in self.wires)
        return {"hits": self.records.stats.hits, "killed": killed, "altered": altered}
