"""The door for peers and the links to it, over real sockets: what is held, fetched and moved."""

from collections.abc import AsyncGenerator, Callable, Collection, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from typing import TypeVar

import anyio
from anyio.abc import SocketListener, SocketStream, TaskGroup
from anyio.to_thread import run_sync

from draftwerk.actors.tier_two.peer_door import (
    LOST,
    STRANGERS_MAX,
    PeerServer,
    listen,
    port_of,
)
from draftwerk.actors.tier_two.peer_links import LOOK_S, PeerLinks
from draftwerk.cache.store.peer_records import Peer, PeerAddress, PeerRecords, greeted
from draftwerk.cache.store.peer_session import (
    ASKER_HELLO_BYTES,
    DOOR_HELLO_BYTES,
    PeerIdentity,
    PeerSecret,
    identity_of,
    peer_secret,
)
from tests.actors.loops import on_both_loops, on_virtual_time
from tests.support.waiting import AtOnce

R = TypeVar("R")
SECRET, OTHER = peer_secret(b"s" * 16), peer_secret(b"t" * 16)
MODEL = b"f" * 16
NAMES = [bytes([number]) * 16 for number in range(20)]
SIZE = 1000


class Cache:
    """Blocks of a server."""

    def __init__(self, count: int) -> None:
        self.blocks = {name: name[:1] * SIZE for name in NAMES[:count]}

    def cached_names(self) -> Collection[bytes]:
        return self.blocks.keys()

    def block_content(self, name: bytes) -> bytes | None:
        return self.blocks.get(name)


class Follower:
    """A server that asks another one."""

    def __init__(
        self, address: PeerAddress, secret: PeerSecret = SECRET, model: bytes = MODEL
    ) -> None:
        self.addresses = [address]
        self.taken: list[bytes] = []
        self.has_taken = anyio.Event()
        self.is_at(identity_of(secret, model))

    def is_at(self, identity: PeerIdentity) -> None:
        self.records = PeerRecords([], partial(greeted, identity=identity))
        self.links = PeerLinks(self.records.peers, self.told, identity, self.take_over)

    async def told(self) -> list[PeerAddress]:
        return self.addresses

    @property
    def peer(self) -> Peer:
        return self.records.peers[0]

    def take_over(self, names: Iterable[bytes]) -> anyio.Event:
        self.taken += names
        return self.has_taken

    async def knows(self, count: int) -> None:
        while len(self.records) != count:  # noqa: ASYNC110 - nothing tells of it
            await anyio.sleep(0.01)

    async def read(self, names: list[bytes]) -> list[bytearray | None]:
        return await run_sync(self.records.read_all, names, SIZE)


@asynccontextmanager
async def open_door(cache: Cache) -> AsyncGenerator[tuple[PeerServer, PeerAddress]]:
    door = PeerServer(cache, identity_of(SECRET, MODEL))
    listener = await listen("127.0.0.1", 0)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(door.run, listener)
        yield door, PeerAddress("127.0.0.1", port_of(listener))
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def following(follower: Follower, count: int = 0) -> AsyncGenerator[TaskGroup]:
    """Have a follower ask for the length of the block, which begins when it knows so many."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(follower.links.run)
        await follower.knows(count)
        yield tasks
        tasks.cancel_scope.cancel()


@on_both_loops
async def test_what_is_held_is_known_and_fetched() -> None:
    cache = Cache(18)
    async with open_door(cache) as (_, address), following(follower := Follower(address), 18):
        assert [*follower.peer.names] == NAMES[:18], "in their order"
        assert await follower.read(NAMES[:18]) == [*cache.blocks.values()]
        cache.blocks |= Cache(20).blocks
        del cache.blocks[NAMES[3]]
        await follower.knows(19)
        assert NAMES[3] not in follower.records and NAMES[19] in follower.records
        del cache.blocks[NAMES[4]]
        assert await follower.read(NAMES[4:6]) == [None, cache.blocks[NAMES[5]]]


@on_virtual_time
async def test_one_that_is_no_peer_any_more_is_followed_no_longer() -> None:
    follower = Follower(PeerAddress("127.0.0.1", 1))  # nobody listens there
    async with following(follower):
        await anyio.sleep(3 * LOOK_S)
        assert [peer.address for peer in follower.records.peers] == follower.addresses
        follower.addresses = []
        await anyio.sleep(3 * LOOK_S)
        assert not follower.records.peers


@on_both_loops
async def test_a_block_is_copied_while_it_has_its_name() -> None:
    cache = Cache(2)

    class Late(AtOnce):
        async def run(self, work: Callable[[], R]) -> R:
            cache.blocks[NAMES[1]] = bytes(SIZE)  # its block is another's now
            return await super().run(work)

    async with open_door(cache) as (door, address):
        door.worker = Late()
        follower = Follower(address)
        follower.records.peers.append(Peer(address))
        follower.peer.learn(NAMES[1:2], ())
        found = await follower.read(NAMES[1:2])
        follower.peer.lose()
        assert found == [NAMES[1][:1] * SIZE]


@on_both_loops
async def test_without_the_secret_or_of_another_model_nothing_is_given() -> None:
    async with open_door(Cache(3)) as (_, address):
        for follower in (Follower(address, OTHER), Follower(address, model=b"g" * 16)):
            async with following(follower):
                await anyio.sleep(0.05)
                assert not follower.peer.names
                follower.peer.learn(NAMES, ())
                assert await follower.read(NAMES[:3]) == [None] * 3


@on_both_loops
async def test_who_leaves_waits_until_its_blocks_were_fetched() -> None:
    async with (
        open_door(Cache(5)) as (door, address),
        following(follower := Follower(address), 5) as tasks,
    ):
        left = anyio.Event()

        async def leave() -> None:
            await door.leave(60.0)
            left.set()

        tasks.start_soon(leave)
        while not follower.taken:  # noqa: ASYNC110 - nothing tells of it
            await anyio.sleep(0.01)
        assert follower.taken == NAMES[:5] and not left.is_set()
        assert (await follower.read(NAMES[:1]))[0] is not None
        follower.has_taken.set()
        await left.wait()


@on_both_loops
async def test_who_leaves_waits_no_longer_than_its_limit() -> None:
    async with open_door(Cache(5)) as (door, address), following(Follower(address), 5):
        await door.leave(0.2)


class Relay:
    """Holds a peer's port, and passes what comes on to another door; may alter it on its way."""

    def __init__(self, door: PeerAddress) -> None:
        self.door = door
        self.seen = bytearray()

    async def run(self, listener: SocketListener) -> None:
        async with listener:
            await listener.serve(self._pass_on)

    async def _pass_on(self, asker: SocketStream) -> None:
        async with (
            asker,
            await anyio.connect_tcp(*self.door) as door,
            anyio.create_task_group() as both,
        ):
            both.start_soon(self._copy, asker, door)
            both.start_soon(self._copy, door, asker)

    async def _copy(self, source: SocketStream, target: SocketStream) -> None:
        with suppress(*LOST):
            async for data in source:
                self.seen += data
                await target.send(data)
            await target.send_eof()


@asynccontextmanager
async def relaying(door: PeerAddress) -> AsyncGenerator[tuple[Relay, PeerAddress]]:
    relay, listener = Relay(door), await listen("127.0.0.1", 0)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(relay.run, listener)
        yield relay, PeerAddress("127.0.0.1", port_of(listener))
        tasks.cancel_scope.cancel()


async def learns_and_reads_nothing(follower: Follower) -> None:
    async with following(follower):
        await anyio.sleep(0.2)
        assert not follower.peer.names
    follower.records.peers.append(peer := Peer(follower.addresses[0]))
    peer.learn(NAMES, ())
    assert await follower.read(NAMES[:3]) == [None] * 3


@on_both_loops
async def test_a_server_is_not_its_own_peer_through_a_port_of_a_peer_that_is_down() -> None:
    """Who holds that port has no secret, and the server would answer for it."""
    async with (
        open_door(Cache(5)) as (door, address),
        relaying(address) as (relay, held),
    ):
        follower = Follower(held)
        follower.is_at(door.identity)
        await learns_and_reads_nothing(follower)
        assert NAMES[0][:1] * 32 not in relay.seen, "not a block was read"


@on_both_loops
async def test_nobody_between_two_servers_reads_what_they_hand_over() -> None:
    async with (
        open_door(Cache(5)) as (_, address),
        relaying(address) as (relay, held),
    ):
        await learns_and_reads_nothing(Follower(held))
        assert len(relay.seen) > 0 and NAMES[0][:1] * 32 not in relay.seen


@on_both_loops
async def test_silent_connections_lock_no_peer_out() -> None:
    async with open_door(Cache(3)) as (door, address), AsyncExitStack() as silent:
        for _ in range(STRANGERS_MAX + 40):
            await silent.enter_async_context(await anyio.connect_tcp(*address))
        async with following(follower := Follower(address), 3):
            assert (await follower.read(NAMES[:1]))[0] is not None
            assert door.strangers <= STRANGERS_MAX


@on_both_loops
async def test_a_door_closes_on_what_is_no_greeting() -> None:
    async with open_door(Cache(3)) as (_, address):
        for said in (bytes(ASKER_HELLO_BYTES), b"GET / HTTP/1.1\r\n\r\n" * 20):
            async with await anyio.connect_tcp(*address) as stream:
                await stream.send(said)
                got = bytearray()
                with suppress(*LOST):
                    while True:
                        got += await stream.receive()
                assert len(got) == DOOR_HELLO_BYTES
