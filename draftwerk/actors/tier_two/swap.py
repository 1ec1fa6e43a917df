"""Brings a preempted sequence's blocks back from tier two, where that beats computing them.

    preempted ── its blocks are cached, then evicted: WriteBehind keeps them ──> store
    waiting, and there is room again ── SwapIn loads what the pool has lost ──> enters

A sequence waits for its blocks once for each preemption, and never long: what does not come is
computed. Others may overtake it meanwhile.
"""

from collections import deque
from dataclasses import dataclass, field

import anyio

from draftwerk.actors.mailbox import Outbox
from draftwerk.actors.messages import CacheMessage, Fetched
from draftwerk.actors.tier_two.intake import LOAD_S, Intake, KeptName
from draftwerk.speculative.requests.sequence import Sequence

FETCHES_MAX = 16
"""Sequences whose blocks are on their way at once; the others are computed."""
BLOCKS_MIN = 2
"""Fewer are computed sooner than they are asked for."""


@dataclass(slots=True)
class SwapIn:
    """Loads blocks for sequences that come back; a `BlockFetcher` of the scheduler's."""

    intake: Intake
    cache: Outbox[CacheMessage]
    _orders: deque[tuple[Sequence, list[KeptName]]] = field(
        default_factory=deque[tuple[Sequence, list[KeptName]]]
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
        missing = self._missing(sequence)
        if len(missing) < BLOCKS_MIN:
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
                sequence, missing = self._orders.popleft()
                try:
                    with anyio.move_on_after(LOAD_S):
                        taken = await self.intake.fetch(missing)
                        self.intake.scheduler.stats.blocks_returned += taken
                finally:
                    self._coming.discard(sequence.sequence_id)
                # One for each that is coming, and the cache empties its mailbox before it asks for
                # more: never full.
                self.cache.send_nowait(Fetched())

    def _missing(self, sequence: Sequence) -> list[KeptName]:
        """Return what the pool has lost of its head, as far as it is kept."""
        blending, tokens = sequence.blending, tuple(sequence.tokens[:-1])
        if blending is not None:
            tokens = tokens[: blending.start]  # what follows depends on its segments
        return self.intake.missing(tokens, sequence.request.name_space)
