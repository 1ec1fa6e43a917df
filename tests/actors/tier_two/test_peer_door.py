"""The door for peers and the links to it, over real sockets: what is held, fetched and moved."""

from collections.abc import AsyncGenerator, Callable, Collection, Iterable
from contextlib import asynccontextmanager
from functools import partial
from typing import TypeVar

import anyio
from anyio.to_thread import run_sync

from draftwerk.actors.tier_two.peer_door import PeerDoor, listen, port_of
from draftwerk.actors.tier_two.peer_links import LOOK_S, PeerLinks
from draftwerk.cache.store.peer_records import Peer, PeerAddress, PeerRecords, greeted
from draftwerk.cache.store.peer_wire import PeerSecret, peer_secret
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
        connect = partial(greeted, secret=secret, fingerprint=model)
        self.records = PeerRecords([], model, connect)
        self.links = PeerLinks(self.records.peers, self.told, secret, model, self.take_over)
        self.taken: list[bytes] = []
        self.has_taken = anyio.Event()

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
async def open_door(cache: Cache) -> AsyncGenerator[tuple[PeerDoor, PeerAddress]]:
    door, listener = PeerDoor(cache, SECRET, MODEL), await listen("127.0.0.1", 0)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(door.run, listener)
        yield door, PeerAddress("127.0.0.1", port_of(listener))
        tasks.cancel_scope.cancel()


@on_both_loops
async def test_what_is_held_is_known_and_fetched() -> None:
    cache = Cache(18)
    async with open_door(cache) as (_, address), anyio.create_task_group() as tasks:
        follower = Follower(address)
        tasks.start_soon(follower.links.run)
        await follower.knows(18)
        assert [*follower.peer.names] == NAMES[:18], "in their order"
        assert await follower.read(NAMES[:18]) == [*cache.blocks.values()]
        cache.blocks |= Cache(20).blocks
        del cache.blocks[NAMES[3]]
        await follower.knows(19)
        assert NAMES[3] not in follower.records and NAMES[19] in follower.records
        del cache.blocks[NAMES[4]]
        assert await follower.read(NAMES[4:6]) == [None, cache.blocks[NAMES[5]]]
        tasks.cancel_scope.cancel()


@on_virtual_time
async def test_one_that_is_no_peer_any_more_is_followed_no_longer() -> None:
    follower = Follower(PeerAddress("127.0.0.1", 1))  # nobody listens there
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(follower.links.run)
        await anyio.sleep(3 * LOOK_S)
        assert [peer.address for peer in follower.records.peers] == follower.addresses
        follower.addresses = []
        await anyio.sleep(3 * LOOK_S)
        assert not follower.records.peers
        tasks.cancel_scope.cancel()


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
    async with open_door(Cache(3)) as (_, address), anyio.create_task_group() as tasks:
        for follower in (Follower(address, OTHER), Follower(address, model=b"g" * 16)):
            tasks.start_soon(follower.links.run)
            await anyio.sleep(0.05)
            assert not follower.peer.names
            follower.peer.learn(NAMES, ())
            assert await follower.read(NAMES[:3]) == [None] * 3
        tasks.cancel_scope.cancel()


@on_both_loops
async def test_who_leaves_waits_until_its_blocks_were_fetched() -> None:
    async with open_door(Cache(5)) as (door, address), anyio.create_task_group() as tasks:
        follower = Follower(address)
        tasks.start_soon(follower.links.run)
        await follower.knows(5)
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
        tasks.cancel_scope.cancel()


@on_both_loops
async def test_who_leaves_waits_no_longer_than_its_limit() -> None:
    async with open_door(Cache(5)) as (door, address), anyio.create_task_group() as tasks:
        follower = Follower(address)
        tasks.start_soon(follower.links.run)
        await follower.knows(5)
        await door.leave(0.2)
        tasks.cancel_scope.cancel()
