"""Links of doors and replicas: without the secret one is told nothing, and believed nothing."""

import asyncio
import random
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import cast

import pytest

from draftwerk.cache.store.peer_session import (
    DOOR_HELLO_BYTES,
    AskerHandshake,
    DoorHandshake,
    PeerRefusedError,
    PeerSession,
    address_bytes,
)
from draftwerk_cluster.door_connection import DECODER
from draftwerk_cluster.frame_stream import FrameStream, LinkLostError, link_identity
from draftwerk_cluster.protocol import Depart, FromDoor, Hello
from draftwerk_cluster.replica_link import connect
from draftwerk_cluster.replica_server import STRANGERS_MAX
from tests.cluster.small_cluster import SECRET, Replica, small_cluster
from tests.support.waiting import DEADLINE_S, until

HERE = address_bytes(("127.0.0.1", 9))


class Written:
    """The part of a connection that is written to: it keeps what is."""

    def __init__(self) -> None:
        self.data = b""

    def is_closing(self) -> bool:
        return False

    def write(self, data: bytes) -> None:
        self.data += data


def sessions() -> tuple[PeerSession, PeerSession]:
    """Return those of a door and of the replica that it has met."""
    door = AskerHandshake(link_identity(SECRET), "place", HERE)
    replica = DoorHandshake(link_identity(SECRET), HERE)
    proof, session = replica.accept(door.answer(replica.hello))
    return door.session(proof), session


def said(session: PeerSession, *messages: FromDoor) -> list[bytes]:
    """Return what a side writes for each message."""
    frames: list[bytes] = []
    for message in messages:
        written = Written()
        writer = cast("asyncio.StreamWriter", written)
        FrameStream(asyncio.StreamReader(), writer, DECODER, session).send(message)
        frames.append(written.data)
    return frames


async def heard(session: PeerSession, data: bytes) -> list[FromDoor]:
    """Return the messages that are read of these bytes, up to the first that is refused."""
    reader = asyncio.StreamReader()
    reader.feed_data(data)
    reader.feed_eof()
    stream = FrameStream(reader, cast("asyncio.StreamWriter", Written()), DECODER, session)
    found: list[FromDoor] = []
    with suppress(LinkLostError):
        while True:
            found.append(await stream.receive(DEADLINE_S))
    return found


async def test_what_a_door_says_is_heard_in_its_order_and_once() -> None:
    door, replica = sessions()
    one, two = said(door, Hello(door_id="d"), Depart())
    assert await heard(replica, one + two + two) == [Hello(door_id="d"), Depart()]
    door, replica = sessions()
    one, two = said(door, Hello(door_id="d"), Depart())
    assert await heard(replica, two + one) == []


def test_a_thousand_forged_messages_are_all_refused() -> None:
    assert asyncio.run(accepted_forgeries(1000)) == 0


async def accepted_forgeries(count: int) -> int:
    """Forge so many messages in five ways; returns how many were read."""
    rng, accepted = random.Random(64), 0
    for number in range(count):
        door, replica = sessions()
        (frame,) = said(door, Hello(door_id="door"))
        forged = bytearray(frame)
        match number % 5:
            case 0:  # without any key
                forged[-16:] = rng.randbytes(16)
            case 1:  # a bit
                forged[rng.randrange(len(forged))] ^= 1 << rng.randrange(8)
            case 2:  # of another connection
                forged[:] = said(sessions()[0], Hello(door_id="door"))[0]
            case 3:  # the replica's own words, sent back to it
                forged[:] = said(replica, Hello(door_id="door"))[0]
            case _:  # cut
                del forged[rng.randrange(len(forged)) :]
        accepted += len(await heard(replica, bytes(forged)))
    return accepted


@asynccontextmanager
async def passing_on(port: int) -> AsyncGenerator[tuple[int, list[bytes]]]:
    """Hold a port that a door dials, and pass all on to a replica; yields what was passed."""
    passed: list[bytes] = []

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(2**16):
            passed.append(data)
            writer.write(data)
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, to = await asyncio.open_connection("127.0.0.1", port)
        with suppress(OSError):
            await asyncio.gather(copy(reader, to), copy(there, writer))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1], passed


async def test_who_holds_another_port_and_passes_all_on_joins_nothing() -> None:
    async with small_cluster(Replica("a")) as cluster:
        async with passing_on(cluster.replicas["a"].port) as (port, passed):
            with pytest.raises(LinkLostError):
                await connect("127.0.0.1", port, SECRET, "door", DEADLINE_S)
            assert len(b"".join(passed)) > DOOR_HELLO_BYTES, "both greetings were passed on"
        assert len(cluster.replicas["a"].server.state.doors) == 1, "the cluster's own door"


async def test_a_door_that_heard_a_greeting_cannot_say_it_again() -> None:
    async with small_cluster(Replica("a")) as cluster:
        port = cluster.replicas["a"].port
        there = address_bytes(("127.0.0.1", port))
        answers: list[bytes] = []
        for number in range(2):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            hello = await reader.readexactly(DOOR_HELLO_BYTES)
            door = AskerHandshake(link_identity(SECRET), "place", there)
            answers.append(door.answer(hello))
            writer.write(answers[0])
            proof = await reader.read() if number else await reader.readexactly(32)
            assert bool(proof) is (number == 0)
            writer.close()


async def test_a_peers_purpose_or_another_secret_is_no_door() -> None:
    replica = DoorHandshake(link_identity(SECRET), HERE)
    asker = AskerHandshake(link_identity(b"another"), "place", HERE)
    with pytest.raises(PeerRefusedError):
        replica.accept(asker.answer(replica.hello))
    peer = link_identity(SECRET)._replace(fingerprint=b"f" * 16)
    with pytest.raises(PeerRefusedError):
        replica.accept(AskerHandshake(peer, "fetch", HERE).answer(replica.hello))


async def test_silent_connections_keep_no_door_out() -> None:
    async with small_cluster(Replica("a")) as cluster:
        replica = cluster.replicas["a"]
        silent = [
            await asyncio.open_connection("127.0.0.1", replica.port)
            for _ in range(STRANGERS_MAX + 40)
        ]
        link = await connect("127.0.0.1", replica.port, SECRET, "late", DEADLINE_S)
        await until(lambda: len(replica.server.state.doors) == 2)
        await link.frames.close()
        await until(lambda: len(replica.server.state.doors) == 1)
        for _, writer in silent:
            writer.close()
