"""Has blocks of sequences that enter loaded from tier two, where that beats computing them.

    waiting ── there is room: it enters, and holds blocks ──> running, and not in rounds yet
                                 Intake loads, part after part ──> into the blocks that it held
    a preempted sequence's blocks are cached, then evicted: WriteBehind keeps them ──> store

What is loaded has the room that its sequence took, so nothing is lost again before it is read; who
preempts or cancels the sequence has that room at once. A sequence waits once for each time that it
enters, and never long: what does not come is computed. Others may overtake it meanwhile.
"""

from dataclasses import dataclass, field

import anyio

from draftwerk.actors.mailbox import Outbox
from draftwerk.actors.messages import CacheMessage, Released
from draftwerk.actors.tier_two.intake import LOAD_S, Intake, KeptName, TakeIn
from draftwerk.speculative.sequence import Sequence

FETCHES_MAX = 64
"""Sequences whose blocks are on their way at once; the others are computed."""


@dataclass(slots=True)
class Fetching:
    """Loads blocks for sequences that enter; the running set has it begin."""

    intake: Intake
    cache: Outbox[CacheMessage]
    _orders: list[tuple[Sequence, int, list[KeptName]]] = field(
        default_factory=list[tuple[Sequence, int, list[KeptName]]]
    )
    _under_way: int = 0
    _more: anyio.Event = field(default_factory=anyio.Event)

    def __post_init__(self) -> None:
        self.intake.scheduler.running_set.holds_back = self.begin

    def begin(self, sequence: Sequence) -> bool:
        """Have blocks loaded that a sequence lacks; returns whether it is to wait for them."""
        if self._under_way >= FETCHES_MAX or self.intake.hangs:
            return False
        self.intake.costs.computed(self.intake.scheduler.report)
        wanted = dict[KeptName, None]()
        for tokens in sequence.looked_for():
            wanted |= dict.fromkeys(self.intake.missing(tokens, sequence.request.name_space))
        if not wanted:
            return False
        self._under_way += 1
        self._orders.append((sequence, sequence.tally.preemptions, [*wanted]))
        self._more.set()
        return True

    async def run(self) -> None:
        """Load for several sequences at once."""
        async with anyio.create_task_group() as beside:
            while True:
                await self._more.wait()
                self._more = anyio.Event()
                for order in self._orders:
                    beside.start_soon(self._fetch, *order)
                self._orders.clear()

    async def _fetch(self, sequence: Sequence, number: int, wanted: list[KeptName]) -> None:
        """Have what is wanted, or as much as comes in time; then its prompt is read.

        `number` is of its preemptions: it may have entered again meanwhile. Of one that has not,
        blocks go where there is room, as others may wait for them.
        """
        scheduler = self.intake.scheduler

        def place(take_in: TakeIn) -> None:
            if not sequence.held_back:
                take_in()
                return
            # It finds what was loaded, which is taken into the room that it held.
            sequence.leave()
            taken = take_in()
            if not sequence.enter():
                scheduler.running_set.preempt(sequence)  # a snapshot takes a slot more
            scheduler.stats.blocks_returned += taken if sequence.tally.preemptions else 0

        with anyio.move_on_after(LOAD_S):
            await self.intake.fetch_in_parts(wanted, place, sequence.request.request_id)
        place(int)  # what others have loaded is found as well
        if sequence.held_back and sequence.tally.preemptions == number:
            sequence.held_back = False
            scheduler.running_set.count_admission(sequence)
        self._under_way -= 1
        # One for each that is under way, of which there are few: never full.
        self.cache.send_nowait(Released())
