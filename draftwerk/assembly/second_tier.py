"""Tier two over the target's pages: records in a folder, or blocks of other servers."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

import anyio
from anyio.abc import SocketListener

from draftwerk.actors.tier_two.peer_door import PeerServer, listen, port_of
from draftwerk.actors.tier_two.peer_links import PeerLinks
from draftwerk.actors.tier_two.tier_two_actors import TierTwoStores
from draftwerk.assembly.model_processes import ModelMemory
from draftwerk.cache.pages.page_layout import PageLayout
from draftwerk.cache.store.block_bytes import BlockBytes
from draftwerk.cache.store.block_record import FINGERPRINT_BYTES
from draftwerk.cache.store.disk import DiskStore, name_key
from draftwerk.cache.store.page_store import PageStore, Records
from draftwerk.cache.store.peer_records import REPLICAS, PeerAddress, PeerRecords, greeted
from draftwerk.cache.store.peer_session import (
    PeerIdentity,
    PeerSecret,
    identity_of,
    peer_secret,
)
from draftwerk.settings.engine_settings import EngineSettings
from draftwerk.settings.setting_fields import ConfigError, bytes_of
from draftwerk.speculative.protocol.frames import Ready

STATES = b"state"
"""The kind of records of recurrent states."""
LEAVE_S = 20.0
"""For peers to fetch what a server has that ends."""


class ToldPeers(NamedTuple):
    """A cluster's word to a replica on the others."""

    secret: PeerSecret
    listen: PeerAddress | None
    """Where it is to hand over blocks, port 0 for any; None if it is not."""
    addresses: Callable[[], Awaitable[Collection[PeerAddress]]]
    """Returns where the others do now."""


class Peering(NamedTuple):
    """The parts of servers that hand each other blocks."""

    identity: PeerIdentity
    records: PeerRecords
    """The records of the peers that this server asks."""
    addresses: Callable[[], Awaitable[Collection[PeerAddress]]]
    """Returns where those are."""
    listener: SocketListener | None
    """Where others ask this one."""

    @property
    def port(self) -> int:
        """Where others ask this server; 0 if they cannot."""
        return 0 if self.listener is None else port_of(self.listener)


@dataclass(frozen=True, slots=True)
class SecondTier:
    """Where blocks are that the pool has not."""

    store: PageStore
    state_store: PageStore | None
    """The store of snapshots of recurrent states."""
    name_key: bytes
    """Keys the names of blocks."""
    peering: Peering | None = None
    attachment: TierTwoStores = field(init=False)
    """Its part beside an engine's actors."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "attachment", TierTwoStores(self.store, self.state_store))

    @property
    def port(self) -> int:
        """Where others ask this server; 0 if they cannot."""
        return 0 if self.peering is None else self.peering.port

    def close(self) -> None:
        """Let go of the pages."""
        for each in (self.store, self.state_store):
            if each is not None:
                each.pages.close()


async def second_tier(
    settings: EngineSettings, ready: Ready, memory: ModelMemory, told: ToldPeers | None = None
) -> SecondTier | None:
    """Return what the settings ask for; `told` is of a cluster. Raises ConfigError where it cannot
    be used."""
    if settings.kv_store:
        return await anyio.to_thread.run_sync(_on_disk, settings, ready, memory)
    if settings.kv_listen or settings.kv_peers:
        return await _at_peers(settings, ready, memory, told)
    return None


def _on_disk(settings: EngineSettings, ready: Ready, memory: ModelMemory) -> SecondTier:
    fingerprint = _fingerprint("kv_store", ready, memory)
    folder = Path(settings.kv_store).expanduser()
    try:
        key = name_key(folder)
    except OSError as error:
        raise ConfigError(f"kv_store: {folder} cannot be used: {error.strerror}") from None
    slots, state_bytes = ready.states
    assert ready.pages is not None
    disk = DiskStore(
        folder,
        fingerprint,
        ready.pages.block_bytes,
        bytes_of(settings.kv_store_size),
        state_bytes=state_bytes,
    )
    disk.recount()
    store = _page_store(disk, ready, memory)
    if not slots:
        return SecondTier(store, None, key)
    # A slot is all of a state, and slots lie behind the planes.
    layout = PageLayout(planes=1, block_count=slots, unit_bytes=state_bytes)
    states = BlockBytes(layout, _view(memory)[ready.pages.page_bytes :])
    return SecondTier(store, PageStore(disk, states, STATES), key)


async def _at_peers(
    settings: EngineSettings, ready: Ready, memory: ModelMemory, told: ToldPeers | None
) -> SecondTier:
    name = "kv_listen" if settings.kv_listen else "kv_peers"
    fingerprint = _fingerprint(name, ready, memory)
    if ready.states[0]:
        raise ConfigError(f"{name}: recurrent states are not handed over; serve without")
    if settings.kv_peers != (REPLICAS,):
        told = await _told_by_settings(settings)
    if told is None:
        raise ConfigError(f"kv_peers: without --replicas there are no {REPLICAS}")
    try:
        listener = None if told.listen is None else await listen(*told.listen)
    except OSError as error:
        raise ConfigError(f"kv_listen: {settings.kv_listen}: {error.strerror}") from None
    identity = identity_of(told.secret, fingerprint)
    records = PeerRecords([], partial(greeted, identity=identity))
    store = _page_store(records, ready, memory)
    peering = Peering(identity, records, told.addresses, listener)
    return SecondTier(store, None, told.secret.names, peering)


async def _told_by_settings(settings: EngineSettings) -> ToldPeers:
    secret = await anyio.to_thread.run_sync(_secret, Path(settings.kv_key))
    found = [PeerAddress.read(word) for word in settings.kv_peers]

    async def addresses() -> Collection[PeerAddress]:
        return found

    own = PeerAddress.read(settings.kv_listen) if settings.kv_listen else None
    return ToldPeers(secret, own, addresses)


def _secret(path: Path) -> PeerSecret:
    try:
        return peer_secret(path.expanduser().read_bytes())
    except (OSError, ValueError) as error:
        said = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"kv_key: {path} cannot be used: {said}") from None


def _fingerprint(name: str, ready: Ready, memory: ModelMemory) -> bytes:
    """Return what tells the pages' bytes from all others. Raises ConfigError."""
    if memory.pages is None or ready.pages is None or not ready.fingerprint:
        raise ConfigError(f"{name}: this model's blocks cannot be kept; it needs a CPU")
    return bytes.fromhex(ready.fingerprint)[:FINGERPRINT_BYTES]


def _page_store(records: Records, ready: Ready, memory: ModelMemory) -> PageStore:
    assert ready.pages is not None
    return PageStore(records, BlockBytes(ready.pages, _view(memory)))


def _view(memory: ModelMemory) -> memoryview:
    assert memory.pages is not None
    return memoryview(memory.pages.map())


@asynccontextmanager
async def handing_over(tier: SecondTier | None) -> AsyncGenerator[None]:
    """Hand blocks to peers and follow what they hold while the block lasts; then let them fetch
    what is here."""
    if tier is None or tier.peering is None:
        yield
        return
    peering, held = tier.peering, tier.attachment
    door = PeerServer(held, peering.identity)
    links = PeerLinks(peering.records.peers, peering.addresses, peering.identity, held.warm)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(links.run)
        if peering.listener is not None:
            tasks.start_soon(door.run, peering.listener)
        yield
        await door.leave(LEAVE_S)
        tasks.cancel_scope.cancel()
