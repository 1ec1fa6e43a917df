"""Blocks fetched from peers: whole or not at all, and never from one that has just failed."""

import random
from dataclasses import dataclass, field

import pytest

from draftwerk.cache.store.peer_records import (
    IDLE_MAX,
    PAUSE_S,
    Peer,
    PeerAddress,
    PeerConnection,
    PeerRecords,
)
from draftwerk.cache.store.peer_wire import ASKED_MAX, NAMES_MAX
from tests.support.simulated_peers import CELL, FINGERPRINT, MortalWire

SIZE = CELL.size
NAMES = [bytes([number]) * 16 for number in range(6)]


@dataclass
class Peers:
    """Peers with a block each, and the connections to them."""

    kept: dict[int, dict[bytes, list[tuple[int, int]]]]
    chance: float = 0.0
    now: float = 0.0
    wires: list[MortalWire] = field(default_factory=list[MortalWire])
    fingerprint: bytes = FINGERPRINT

    def records(self) -> PeerRecords:
        peers = [Peer(PeerAddress("peer", port)) for port in self.kept]
        for peer in peers:
            peer.learn(self.kept[peer.address.port], ())
        return PeerRecords(peers, self.connect, clock=lambda: self.now)

    def connect(self, address: PeerAddress) -> PeerConnection:
        wire = MortalWire(self.kept[address.port], random.Random(len(self.wires)), self.chance)
        self.wires.append(wire)
        return wire.greeted(self.fingerprint)


def content(number: int) -> bytes:
    return CELL.pack(number, number)


def holding(*numbers: int) -> dict[bytes, list[tuple[int, int]]]:
    return {NAMES[number]: [(number, number)] for number in numbers}


def test_each_block_comes_from_a_peer_that_has_it() -> None:
    records = Peers({1: holding(0, 1), 2: holding(1, 2)}).records()
    assert [name in records for name in NAMES[:4]] == [True, True, True, False]
    found = records.read_all(NAMES[:4], SIZE)
    assert found == [content(0), content(1), content(2), None]
    assert (records.stats.hits, records.stats.misses, len(records)) == (3, 1, 3)


def test_what_a_peer_has_lost_is_a_miss_and_the_rest_comes() -> None:
    made = Peers({1: holding(0, 1, 2)})
    records = made.records()
    del made.kept[1][NAMES[1]]
    assert records.read_all(NAMES[:3], SIZE) == [content(0), None, content(2)]
    assert NAMES[1] not in records and len(made.wires) == 1
    records.read_all(NAMES[:1], SIZE)
    assert len(made.wires) == 1, "the connection is used again"


def test_a_fault_anywhere_is_a_miss_and_never_another_byte() -> None:
    made = Peers({1: holding(*range(6))}, chance=0.3)
    records = made.records()
    faults = 0
    for _ in range(300):
        found = records.read_all(NAMES, SIZE)
        assert all(each in (None, content(number)) for number, each in enumerate(found))
        if None in found:
            faults += 1
            assert NAMES[0] not in records, "it is left alone for a moment"
            records.peers[0].learn(NAMES, ())
        made.now += 2 * PAUSE_S
    assert faults > 200 and records.stats.refused > 30
    assert all(wire.is_closed for wire in made.wires if wire.fault)


def test_a_record_of_another_model_is_refused() -> None:
    records = Peers({1: holding(0)}, fingerprint=b"g" * 16).records()
    assert records.read_all(NAMES[:1], SIZE) == [None]
    assert records.stats.refused == 1


def test_a_peer_that_cannot_be_reached_is_a_miss() -> None:
    def refuse(address: PeerAddress) -> PeerConnection:
        raise ConnectionRefusedError

    peer = Peer(PeerAddress("peer", 1))
    peer.learn(NAMES, ())
    records = PeerRecords([peer], refuse)
    assert records.read_all(NAMES, SIZE) == [None] * len(NAMES)
    assert NAMES[0] not in records


def test_a_peer_that_is_lost_is_forgotten_with_its_connections() -> None:
    made = Peers({1: holding(0)})
    records = made.records()
    records.read_all(NAMES[:1], SIZE)
    records.peers[0].lose()
    assert made.wires[0].is_closed and NAMES[0] not in records


def test_few_connections_are_kept_open() -> None:
    made = Peers({1: holding(0)})
    records = made.records()
    peer = records.peers[0]
    peer.idle.extend(made.connect(peer.address) for _ in range(IDLE_MAX + 2))
    records.read_all(NAMES[:1], SIZE)
    assert len(peer.idle) == IDLE_MAX
    assert sum(wire.is_closed for wire in made.wires) == 2


def test_of_too_many_names_the_last_are_known() -> None:
    peer = Peer(PeerAddress("peer", 1))
    names = [number.to_bytes(16, "little") for number in range(NAMES_MAX + 5)]
    peer.learn(names[:NAMES_MAX], ())
    peer.learn(names[NAMES_MAX:], ())
    assert [*peer.names] == names[5:]


def test_many_blocks_are_asked_for_a_few_hundred_at_a_time() -> None:
    names = [number.to_bytes(16, "little") for number in range(2 * ASKED_MAX + 1)]
    made = Peers({1: {name: [(number, number)] for number, name in enumerate(names)}})
    found = made.records().read_all(names, SIZE)
    assert found == [content(number) for number in range(len(names))]
    assert made.wires[0].door.other.count == 3, "messages"


def test_addresses_are_read_and_others_refused() -> None:
    assert PeerAddress.read("10.0.0.1:81") == ("10.0.0.1", 81)
    assert PeerAddress.read("[::1]:81") == ("::1", 81)
    for word in ("host", ":81", "host:", "host:x", "host:0", "host:65536"):
        with pytest.raises(ValueError, match=word):
            PeerAddress.read(word)
