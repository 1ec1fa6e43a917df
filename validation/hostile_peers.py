"""Strangers between two live servers that hand blocks to each other: nothing is read, none served.

    python -m validation.hostile_peers [--forged 1000] [--greetings 1000]

Two servers share a key; the second fetches the blocks of the first, as it should. A third side
holds the port of a peer of the first that is down, and reflects, relays, answers with noise and
announces 10,000 names. It greets the first one's door with another key, with what it has heard, and
with noise. Then it stands on the way of that door's questions and answers, and alters, cuts, swaps,
repeats and forges them. Exits with 1 where a block was believed or handed out, or a text changed.
"""

import argparse
import asyncio
import random
import socket
import sys
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import aiohttp
import msgspec

from benchmarks.support.server import draftwerk
from draftwerk.cache.store.block_record import FINGERPRINT_BYTES, NAME_BYTES
from draftwerk.cache.store.peer_records import PeerAddress, PeerConnection, greeted, received
from draftwerk.cache.store.peer_session import (
    ASKER_HELLO_BYTES,
    DOOR_HELLO_BYTES,
    PROOF_BYTES,
    AskerHandshake,
    PeerIdentity,
    PeerRefusedError,
    Seal,
    address_bytes,
    identity_of,
    peer_secret,
)
from draftwerk.cache.store.peer_wire import (
    ANSWER,
    ANSWER_BYTES,
    LENGTH_BYTES,
    Holdings,
    message,
    message_size,
    opened,
    read_holdings,
)
from draftwerk_tools.loadtest.server.launcher import free_port
from draftwerk_tools.loadtest.server.metrics import fetch_metrics
from validation.peer_tricks import TRICKS, OnTheWay

PROMPTS = [f"{number} tell me of " + "the sea and the land " * 40 for number in range(4)]
KEY = b"a secret of both servers\n"
DIALS, WAIT_S = 3, 300.0
"""Times that each trick meets the first server, and how long that may take."""
NAMES_TOLD = 10_000


@dataclass(slots=True)
class HeldPort:
    """The port of a peer that is down, in the hands of a stranger."""

    port: int
    target: int = 0
    """The door that what comes is passed on to; noise without."""
    dials: int = 0
    hellos: list[bytes] = field(default_factory=list[bytes])
    """Beginnings of what was heard."""
    passed: int = 0
    """Bytes passed on of a door's, beyond its hello."""

    async def serve(self) -> asyncio.Server:
        """Take connections."""
        return await asyncio.start_server(self._take, "127.0.0.1", self.port)

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.dials += 1
        with suppress(OSError, asyncio.IncompleteReadError, TimeoutError):
            async with asyncio.timeout(5):
                await (
                    self._pass_on(reader, writer) if self.target else self._noise(reader, writer)
                )
        writer.close()

    async def _noise(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(random.randbytes(DOOR_HELLO_BYTES))
        self.hellos.append(await reader.readexactly(ASKER_HELLO_BYTES))
        seal = Seal(random.randbytes(32))
        names = tuple(random.randbytes(NAME_BYTES) for _ in range(NAMES_TOLD))
        writer.write(random.randbytes(PROOF_BYTES))
        writer.write(message(seal, msgspec.msgpack.encode(Holdings(names))))
        await reader.read()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        theirs, to_them = await asyncio.open_connection("127.0.0.1", self.target)
        writer.write(await theirs.readexactly(DOOR_HELLO_BYTES))
        to_them.write(await reader.readexactly(ASKER_HELLO_BYTES))
        try:
            while data := await theirs.read(2**16):
                self.passed += len(data)
                writer.write(data)
        finally:
            to_them.close()


def greeting_is_refused(door: PeerAddress, hello: bytes) -> bool:
    """Whether a door answers nothing to a greeting but its own hello."""
    with socket.create_connection(door, 30.0) as wire, suppress(OSError):
        received(wire, DOOR_HELLO_BYTES)
        wire.sendall(hello)
        return not wire.recv(1)
    return True


def names_held(door: PeerAddress, identity: PeerIdentity) -> list[bytes]:
    """Return the names that a door tells one that knows the key."""
    with socket.create_connection(door, 30.0) as wire:
        handshake = AskerHandshake(identity, "follow", address_bytes(wire.getpeername()))
        wire.sendall(handshake.answer(bytes(received(wire, DOOR_HELLO_BYTES))))
        session = handshake.session(bytes(received(wire, PROOF_BYTES)))
        size = bytes(received(wire, LENGTH_BYTES))
        data = bytes(received(wire, message_size(size)))
        return [*read_holdings(opened(session.other, size, data)).added]


def answers_of(connection: PeerConnection, names: list[bytes]) -> list[bytes]:
    """Return the answers of a door as they come over the wire."""
    connection.ask(names)
    found: list[bytes] = []
    for _ in names:
        head = received(connection.wire, ANSWER_BYTES)
        _, size = ANSWER.unpack(head[: ANSWER.size])
        found.append(bytes(head + received(connection.wire, size)))
    return found


def believed(door: PeerAddress, identity: PeerIdentity, names: list[bytes], trick: str) -> bool:
    """Whether the first of two blocks is believed behind a trick on the way."""
    connection = greeted(door, identity)
    wire = connection.wire
    try:
        one, two = answers_of(connection, names)
        said = one + two if not trick else TRICKS[trick](random.Random(), one, two)
        connection.wire = OnTheWay(said)
        for _ in range(1 + (trick == "repeated")):
            connection.answer(names[0], len(one) - ANSWER_BYTES)
        return True
    except (PeerRefusedError, ConnectionResetError):
        return False
    finally:
        wire.close()


def answered(door: PeerAddress, identity: PeerIdentity, names: list[bytes], trick: str) -> bool:
    """Whether a door answers what asks it behind a trick on the way."""
    connection = greeted(door, identity)
    wire, connection.wire = connection.wire, (way := OnTheWay(b""))
    assert isinstance(wire, socket.socket)
    with wire, suppress(OSError):
        for name in names:
            connection.ask([name])
        wire.sendall(TRICKS[trick](random.Random(), *way.sent))
        wire.shutdown(socket.SHUT_WR)
        if trick == "repeated":  # the first time it is sound
            received(wire, ANSWER.unpack(received(wire, ANSWER_BYTES)[: ANSWER.size])[1])
        return bool(wire.recv(1))
    return False


async def texts(http: aiohttp.ClientSession, url: str) -> list[str]:
    """Return what a server writes behind the prompts."""
    found: list[str] = []
    for number, prompt in enumerate(PROMPTS):
        body = {"prompt": prompt, "max_tokens": 24, "temperature": number % 2, "seed": number}
        async with http.post(url + "/v1/completions", json=body) as reply:
            found.append((await reply.json())["choices"][0]["text"])
    return found


async def counted(http: aiohttp.ClientSession, url: str, name: str) -> float:
    """Return a figure of a server's second tier."""
    return (await fetch_metrics(http, url)).total(f"draftwerk_kv_store_{name}")


async def run(arguments: argparse.Namespace, folder: Path) -> int:
    """Return how much went wrong."""
    (folder / "key").write_bytes(KEY)
    doors, held = [free_port(), free_port()], HeldPort(free_port())
    faults: list[str] = []
    async with AsyncExitStack() as stack:
        stack.callback((await held.serve()).close)
        http = await stack.enter_async_context(aiohttp.ClientSession())
        one, two = [
            await stack.enter_async_context(
                draftwerk(
                    *("--kv-key", str(folder / "key"), "--kv-listen", f"127.0.0.1:{door}"),
                    *("--kv-peers", f"127.0.0.1:{peer}", "--kv-memory", "256MiB"),
                )
            )
            for door, peer in zip(doors, (held.port, doors[0]), strict=True)
        ]
        plain = await texts(http, one.url)
        async with asyncio.timeout(WAIT_S):
            while not await counted(http, two.url, "blocks"):  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.1)
        faults += ["the honest peer's texts differ"] * (await texts(http, two.url) != plain)
        print(
            f"the second server has fetched {await counted(http, two.url, 'hits_total'):.0f} blocks"
        )
        for name, target in (("noise", 0), ("reflection", doors[0]), ("relay", doors[1])):
            held.target, before = target, held.dials
            async with asyncio.timeout(WAIT_S):
                while held.dials < before + DIALS:  # noqa: ASYNC110 - nobody tells
                    await asyncio.sleep(0.1)
            told, hits = [await counted(http, one.url, what) for what in ("blocks", "hits_total")]
            same = await texts(http, one.url) == plain
            print(
                f"{name}: {held.dials - before} dials, {told:.0f} names, {hits:.0f} blocks,"
                f" {held.passed} bytes passed on, texts {'equal' if same else 'DIFFER'}"
            )
            faults += [name] * bool(told or hits or not same or held.passed > PROOF_BYTES * DIALS)
        door, model = PeerAddress("127.0.0.1", doors[0]), held.hellos[0][1:][:FINGERPRINT_BYTES]
        faults += await asyncio.to_thread(greetings, arguments.greetings, door, held.hellos)
        identity = identity_of(peer_secret(KEY), model)
        faults += await asyncio.to_thread(tricks, arguments.forged, door, identity)
        faults += ["texts differ"] * (await texts(http, one.url) != plain)
    print(*faults, sep="\n")
    return len(faults)


def greetings(count: int, door: PeerAddress, heard: list[bytes]) -> list[str]:
    """Greet a door without the key, again and again; return what was answered."""
    wrong, answered = identity_of(peer_secret(b"another secret of others"), heard[0][1:17]), 0
    for number in range(count):
        if number % 3 == 0:
            with suppress(OSError):
                greeted(door, wrong).close()
                answered += 1
        else:
            hello = random.choice(heard) if number % 3 == 1 else random.randbytes(ASKER_HELLO_BYTES)
            answered += not greeting_is_refused(door, hello)
    print(f"{count} greetings without the key, {answered} answered")
    return ["a greeting without the key was answered"] * (answered > 0)


def tricks(count: int, door: PeerAddress, identity: PeerIdentity) -> list[str]:
    """Play tricks on the way of answers; return those that were believed."""
    names = names_held(door, identity)[:2]
    assert believed(door, identity, names, ""), "without a trick a block comes"
    wrong: list[str] = []
    for number in range(count):
        trick = [*TRICKS][number % len(TRICKS)]
        wrong += [f"{trick}: believed"] * believed(door, identity, names, trick)
        wrong += [f"{trick}: answered"] * answered(door, identity, names, trick)
    print(f"{count} answers and {count} questions tricked on their way, {len(wrong)} believed")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--forged", type=int, default=1000)
    parser.add_argument("--greetings", type=int, default=1000)
    with TemporaryDirectory() as folder:
        return min(1, asyncio.run(run(parser.parse_args(), Path(folder))))


if __name__ == "__main__":
    sys.exit(main())
