"""Tier two: actors beside the pipe that decodes.

    store ──> [Fetching, Warming] ──> pool ──> [WriteBehind] ──> store

The actors of the pipe know none of these but by the messages that they exchange.
"""

from dataclasses import dataclass

import anyio

from draftwerk.actors.engine_parts import EngineParts
from draftwerk.actors.mailbox import Outbox
from draftwerk.actors.messages import CacheMessage
from draftwerk.actors.tier_two.fetching import Fetching
from draftwerk.actors.tier_two.intake import Intake
from draftwerk.actors.tier_two.kept_pool import KeptPool
from draftwerk.actors.tier_two.warming import Warming
from draftwerk.actors.tier_two.write_behind import WRITE_PAUSE_S, WriteBehind
from draftwerk.cache.kinds.recurrent_states import StateRules
from draftwerk.cache.tables import BlockNamer
from draftwerk.speculative.scheduler.scheduler import Scheduler

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


def tier_two_actors(
    parts: EngineParts,
    scheduler: Scheduler,
    namer: BlockNamer,
    cache: Outbox[CacheMessage],
) -> TierTwo | None:
    """Return what keeps blocks in a store, and loads them; None without a store."""
    store, state_store = parts.store, parts.state_store
    if store is None:
        return None
    blocks, snapshots = KeptPool(scheduler.pool, store), None
    writers = [WriteBehind(blocks, parts.worker)] if store.keeps else []
    if state_store is not None and (states := scheduler.pools.kind(StateRules)) is not None:
        snapshots = KeptPool(states.pool, state_store, states.passing)
        pause_s = WRITE_PAUSE_S * max(1, state_store.size // store.size)
        writers.append(WriteBehind(snapshots, parts.worker, pause_s, SNAPSHOT_COPIES_MAX))
    intake = Intake(scheduler, namer, blocks, snapshots, parts.worker, parts.trace)
    return TierTwo(tuple(writers), Fetching(intake, cache), Warming(intake))
