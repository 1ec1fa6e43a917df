"""Tier two: actors beside the pipe that decodes.

    store ──> [Fetching, Warming] ──> pool ──> [WriteBehind] ──> store

The actors of the pipe know none of these but by the messages that they exchange.
"""

from collections.abc import Callable, Collection, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any

import anyio
from msgspec.structs import replace

from draftwerk.actors.mailbox import Outbox
from draftwerk.actors.messages import CacheMessage
from draftwerk.actors.monitoring.snapshot import Snapshot
from draftwerk.actors.pipeline import EngineAttachment, EngineParts
from draftwerk.actors.tier_two.fetching import FETCHES_MAX, Fetching
from draftwerk.actors.tier_two.intake import Intake
from draftwerk.actors.tier_two.kept_pool import BlockStore, KeptPool
from draftwerk.actors.tier_two.warming import Warming
from draftwerk.actors.tier_two.write_behind import WRITE_PAUSE_S, WriteBehind
from draftwerk.cache.kinds.recurrent_states import StateRules
from draftwerk.cache.tables import BlockNamer
from draftwerk.speculative.scheduler import Scheduler

SNAPSHOT_COPIES_MAX = 2
"""Snapshots copied at their eviction that wait to be written: each takes megabytes."""


@dataclass(slots=True)
class TierTwo:
    """The actors of the second tier; they end together."""

    writers: tuple[WriteBehind, ...]
    """The writers of blocks and of snapshots; none where the store keeps nothing of this server's.
    """
    fetching: Fetching
    warming: Warming

    async def run(self) -> None:
        """Load what is asked for, and some before that; keep what is let go."""
        async with anyio.create_task_group() as all_:
            for writer in self.writers:
                all_.start_soon(writer.run)
            all_.start_soon(self.fetching.run)
            all_.start_soon(self.warming.run)

    async def flush(self) -> None:
        """Keep all that is not kept yet."""
        for writer in self.writers:
            await writer.flush()


@dataclass(slots=True)
class TierTwoStores(EngineAttachment):
    """Stores that keep the blocks which an engine loses; they outlive its pipelines."""

    store: BlockStore
    state_store: BlockStore | None = None
    """The store of snapshots of recurrent states."""
    actors: TierTwo | None = field(default=None, init=False)
    """The actors of the newest pipeline."""

    messages_max = FETCHES_MAX

    def attach(
        self,
        parts: EngineParts,
        scheduler: Scheduler,
        namer: BlockNamer,
        cache: Outbox[CacheMessage],
    ) -> Callable[[], Coroutine[Any, Any, None]]:
        blocks, snapshots = KeptPool(scheduler.pool, self.store), None
        writers = [WriteBehind(blocks, parts.worker)] if self.store.keeps else []
        states = scheduler.pools.kind(StateRules)
        if self.state_store is not None and states is not None:
            snapshots = KeptPool(states.pool, self.state_store, states.passing)
            pause_s = WRITE_PAUSE_S * max(1, self.state_store.size // self.store.size)
            writers.append(WriteBehind(snapshots, parts.worker, pause_s, SNAPSHOT_COPIES_MAX))
        intake = Intake(scheduler, namer, blocks, snapshots, parts.worker, parts.trace)
        self.actors = TierTwo(tuple(writers), Fetching(intake, cache), Warming(intake))
        return self.actors.run

    async def flush(self) -> None:
        """Keep what is in the cache and not kept yet."""
        await self._actors.flush()

    def report(self, snapshot: Snapshot) -> Snapshot:
        return replace(snapshot, store=self.store.counters())

    def cached_names(self) -> Collection[bytes]:
        """Return the names of the blocks in the prefix cache, as a live view."""
        return self._actors.warming.intake.scheduler.pool.names

    def block_content(self, name: bytes) -> bytes | None:
        """Return what is in the cached block of a name, as it is now."""
        block = self._actors.warming.intake.scheduler.pool.find(name)
        return None if block is None else self.store.copy(block)

    def warm(self, names: Iterable[bytes]) -> anyio.Event:
        """Have blocks loaded, as far as there is room that nothing is in; returns what is set once
        that is done."""
        return self._actors.warming.order(names)

    @property
    def _actors(self) -> TierTwo:
        assert self.actors is not None, "no engine has begun"
        return self.actors
