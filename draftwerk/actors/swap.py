"""Brings a preempted sequence's blocks back from tier two, where that beats computing them.

    preempted ── its blocks are cached, then evicted: WriteBehind keeps them ──> store
    waiting, and there is room again ── SwapIn loads what the pool has lost ──> enters

A sequence waits for its blocks once for each preemption, and never long: what does not come is
computed. Others may overtake it meanwhile.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import anyio

from draftwerk.actors.mailbox import Outbox
from draftwerk.actors.messages import CacheMessage, Fetched
from draftwerk.actors.tier_two import LOAD_S, Intake, WriteBehind
from draftwerk.speculative.requests.sequence import Sequence

FETCHES_MAX = 16
"""Sequences whose blocks are on their way at once; the others are computed."""
BLOCKS_MIN = 2
"""Fewer are computed sooner than they are asked for."""


@dataclass(slots=True)
class SwapIn:
    """Loads blocks for sequences that come back; a `BlockFetcher` of the scheduler's."""

    intake: Intake
    write_behind: WriteBehind
    cache: Outbox[CacheMessage]
    _orders: deque[tuple[Sequence, list[bytes]]] = field(
        default_factory=deque[tuple[Sequence, list[bytes]]]
    )
    _coming: set[int] = field(default_factory=set[int])
    _more: anyio.Event = field(default_factory=anyio.Event)

    def __post_init__(self) -> None:
        self.intake.scheduler.prompts.fetcher = self

    def is_fetching(self, sequence: Sequence) -> bool:
        """Return whether blocks of a preempted sequence are on their way; asks for them once."""
        if sequence.sequence_id in self._coming:
            return True
        pool = self.intake.scheduler.pool
        if sequence.fetches == sequence.tally.preemptions or len(self._coming) >= FETCHES_MAX:
            return False
        if pool.available < pool.blocks_for(len(sequence.tokens)):
            return False  # what is loaded now would be lost again before there is room
        sequence.fetches = sequence.tally.preemptions
        missing = [*self._missing(sequence)]
        if len(missing) < BLOCKS_MIN or not self.intake.costs.pays(pool.block_size):
            return False
        self._coming.add(sequence.sequence_id)
        self._orders.append((sequence, missing))
        self._more.set()
        return True

    async def run(self) -> None:
        """Load for one sequence after the other."""
        while True:
            await self._more.wait()
            self._more = anyio.Event()
            while self._orders:
                sequence, names = self._orders.popleft()
                try:
                    with anyio.move_on_after(LOAD_S):
                        await self._fetch(names)
                finally:
                    self._coming.discard(sequence.sequence_id)
                # One for each that is coming, and the cache empties its mailbox before it asks for
                # more: never full.
                self.cache.send_nowait(Fetched())

    async def _fetch(self, names: list[bytes]) -> None:
        begun = anyio.current_time()
        found: dict[bytes, Any] = {}
        for name in names:
            content = self.write_behind.copy_of(name)
            if content is not None:
                found[name] = content
        loaded = [name for name in names if name not in found]
        found |= await self.intake.read(loaded)
        if loaded:
            self.intake.costs.loaded(len(loaded), 1e3 * (anyio.current_time() - begun))
        taken = self.intake.take_in({name: found[name] for name in names if name in found})
        self.intake.scheduler.stats.blocks_returned += taken

    def _missing(self, sequence: Sequence) -> Iterator[bytes]:
        """Yield the blocks of its head that the pool has lost, as far as they are kept."""
        store, pool = self.intake.store, self.intake.scheduler.pool
        blending, tokens = sequence.blending, tuple(sequence.tokens)
        if blending is not None:
            tokens = tokens[: blending.start + 1]  # what follows depends on its segments
        for name in self.intake.names(tokens, sequence.request.name_space):
            if pool.find(name) is None:
                if name not in store and self.write_behind.copy_of(name) is None:
                    return
                yield name
