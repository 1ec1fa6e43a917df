"""What stands beside the pipe that decodes: tier two in front of it.

    Tokenizer ──> [Intake] ──> Cache ──> ...          [WriteBehind] beside the pool

The actors of the pipe know none of these but by the messages that they exchange.
"""

from dataclasses import dataclass, field

import anyio
from anyio.abc import TaskGroup

from draftwerk.actors.devices.device import Worker
from draftwerk.actors.mailbox import Port
from draftwerk.actors.messages import CacheMessage
from draftwerk.actors.monitoring.histogram import WAITS_S, Histogram
from draftwerk.actors.monitoring.trace import Trace
from draftwerk.actors.tier_two.intake import Intake
from draftwerk.actors.tier_two.kept_pool import BlockStore, KeptPool
from draftwerk.actors.tier_two.swap import FETCHES_MAX, SwapIn
from draftwerk.actors.tier_two.warming import Warming
from draftwerk.actors.tier_two.write_behind import WRITE_PAUSE_S, WriteBehind
from draftwerk.cache.prefix import BlockNamer
from draftwerk.speculative.scheduler.scheduler import Scheduler

INTAKE = "intake"
SNAPSHOT_COPIES_MAX = 2
"""Snapshots copied at their eviction that wait to be written: each takes megabytes."""
SIDE_MESSAGES_MAX = FETCHES_MAX
"""That tier two may have under way to the cache, beside what it hands on."""


@dataclass(slots=True)
class TierTwo:
    """The actors of the second tier; they end together."""

    intake: Intake
    writers: tuple[WriteBehind, ...]
    """Of blocks, and of snapshots; none where the store keeps nothing of this server's."""
    swap: SwapIn
    warming: Warming

    async def run(self) -> None:
        """Load what is asked for, and some before that; keep what is let go."""
        async with anyio.create_task_group() as all_:
            for writer in self.writers:
                all_.start_soon(writer.run)
            all_.start_soon(self.swap.run)
            all_.start_soon(self.warming.run)
            await self.intake.run()
            all_.cancel_scope.cancel()

    async def flush(self) -> None:
        """Keep all that is not kept yet."""
        for writer in self.writers:
            await writer.flush()


@dataclass(slots=True)
class SidePipes:
    """Built part by part for one pipeline; without parts, messages go straight to the cache."""

    to_cache: Port[CacheMessage]
    messages_max: int
    """That come to the cache from outside at once."""
    waits: dict[str, Histogram]
    """By the name of the reader, of all pipelines."""
    trace: Trace
    tier_two: TierTwo | None = None
    ports: dict[str, Port[CacheMessage]] = field(default_factory=dict[str, Port[CacheMessage]])
    """The mailboxes of these actors, by the name of the reader."""
    _entrance: Port[CacheMessage] | None = None

    @property
    def entrance(self) -> Port[CacheMessage]:
        """Where the cache takes what comes from outside."""
        return self._entrance or self.to_cache

    def add_tier_two(
        self,
        scheduler: Scheduler,
        namer: BlockNamer,
        store: BlockStore,
        state_store: BlockStore | None,
        worker: Worker,
    ) -> None:
        """Have blocks kept in a store, and loaded before a request comes to the cache.

        `state_store` is for snapshots of recurrent states.
        """
        blocks, snapshots = KeptPool(scheduler.pool, store), None
        writers = [WriteBehind(blocks, worker)] if store.keeps else []
        if state_store is not None and (states := scheduler.running_set.states) is not None:
            snapshots = KeptPool(states.pool, state_store, states.passing)
            pause_s = WRITE_PAUSE_S * max(1, state_store.size // store.size)
            writers.append(WriteBehind(snapshots, worker, pause_s, SNAPSHOT_COPIES_MAX))
        self._entrance = Port[CacheMessage](self.messages_max, self._waits(INTAKE))
        self.ports[INTAKE] = self._entrance
        outbox = self.to_cache.outbox
        intake = Intake(
            self._entrance.inbox, outbox, scheduler, namer, blocks, snapshots, worker, self.trace
        )
        swap, warming = SwapIn(intake, outbox), Warming(intake)
        self.tier_two = TierTwo(intake, tuple(writers), swap, warming)

    def start(self, actors: TaskGroup) -> None:
        """Run every actor that there is."""
        if self.tier_two is not None:
            actors.start_soon(self.tier_two.run)

    def _waits(self, name: str) -> Histogram:
        return self.waits.setdefault(name, Histogram(WAITS_S))
