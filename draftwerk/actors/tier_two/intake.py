"""Tier two's place beside the pool: blocks that are lost here may be had from a store again.

    store ──> Intake ──> pool ──> WriteBehind ──> store          what no table holds is kept

Both work between rounds: a block is read while it has a name, and written while nobody holds it and
no round under way can. A block that cannot be had is computed. Of a model with recurrent layers
snapshots go the same ways as blocks.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import anyio

from draftwerk.actors.devices.device import Worker
from draftwerk.actors.monitoring.trace import Trace
from draftwerk.actors.tier_two.kept_pool import KeptPool
from draftwerk.actors.tier_two.missing_head import MissingHead, to_load
from draftwerk.actors.tier_two.slots_in_flight import blocks_in_flight, states_in_flight
from draftwerk.cache.tables import BlockNamer
from draftwerk.speculative.row_parts.step_report import StepReport
from draftwerk.speculative.scheduler import Scheduler

LOAD_S = 1.0
"""No prompt waits longer for a store: it is computed instead."""
READERS, READS_MAX = 2, 8
"""Threads of one read of blocks, and reads at once."""
PART = 32
"""Blocks that are loaded and taken in at once."""
CHUNK_TOKENS = 64
"""Steps of fewer tokens say little about what a prompt's token costs."""
SMOOTHING = 0.2


@dataclass(slots=True)
class LoadCosts:
    """The costs of loading, and of computing instead."""

    byte_ms: float = 0.0
    """The time of loading one; 0 until something was loaded."""
    token_ms: float = 0.0
    """The time of computing a prompt's token; 0 until a chunk was computed."""

    def loaded(self, size: int, ms: float) -> None:
        self.byte_ms = _smoothed(self.byte_ms, ms / size)

    def computed(self, report: StepReport) -> None:
        if report.load.tokens >= CHUNK_TOKENS:
            self.token_ms = _smoothed(self.token_ms, report.device_ms / report.load.tokens)

    def pays(self, size: int, tokens: int) -> bool:
        """Return whether loading so many bytes beats computing so many tokens.

        While that is not known, it is tried.
        """
        return not self.token_ms or self.byte_ms * size < self.token_ms * tokens


def _smoothed(before: float, now: float) -> float:
    return now if not before else before + SMOOTHING * (now - before)


class KeptName(NamedTuple):
    """A name that a store has."""

    kept: KeptPool
    name: bytes


TakeIn = Callable[[], int]
"""Writes what was loaded into the pools; returns how many blocks there were for it."""
Placing = Callable[[TakeIn], None]


def at_once(take_in: TakeIn) -> None:
    """Take in what was loaded wherever there is a block for it."""
    take_in()


@dataclass(slots=True)
class Intake:
    """Loads blocks into the pool."""

    scheduler: Scheduler
    namer: BlockNamer
    blocks: KeptPool
    snapshots: KeptPool | None
    """The snapshots of a model with recurrent layers."""
    worker: Worker
    trace: Trace = field(default_factory=Trace)
    costs: LoadCosts = field(default_factory=LoadCosts)
    _reading: dict[KeptName, float] = field(default_factory=dict[KeptName, float])
    """When each read began that a thread has under way, waited for or not; by its first name."""
    _readers: anyio.Semaphore = field(default_factory=lambda: anyio.Semaphore(READS_MAX))

    @property
    def hangs(self) -> bool:
        """Whether a read that was given up has not returned: then nobody waits for another."""
        now_s = anyio.current_time()
        return any(now_s - begun_s >= LOAD_S for begun_s in tuple(self._reading.values()))

    def missing(self, tokens: tuple[int, ...], name_space: str) -> list[KeptName]:
        """Return what is to be loaded for the full blocks of a text, where that pays."""
        size = self.scheduler.pool.block_size
        load = to_load(self.namer.chain(tokens, size, name_space), self.blocks, self.snapshots)
        if not self.costs.pays(self._bytes(load), load.spared * size):
            return []
        blocks = [KeptName(self.blocks, name) for name in load.blocks]
        if self.snapshots is not None:
            blocks += [KeptName(self.snapshots, name) for name in load.snapshots]
        return blocks

    def _bytes(self, load: MissingHead) -> int:
        state = 0 if self.snapshots is None else self.snapshots.store.size
        return len(load.blocks) * self.blocks.store.size + len(load.snapshots) * state

    async def fetch_in_parts(
        self, wanted: list[KeptName], place: Placing = at_once, request_id: str = ""
    ) -> None:
        """Load part after part, so that of what comes too slowly the first blocks are of use."""
        for start in range(0, len(wanted), PART):
            await self.fetch(wanted[start : start + PART], place, request_id)

    async def fetch(
        self, wanted: list[KeptName], place: Placing = at_once, request_id: str = ""
    ) -> None:
        """Load what is wanted into the pools, or wait for it; `place` has it taken in."""
        mine = [each for each in wanted if each.name not in each.kept.coming]
        others = [kept.coming[name] for kept, name in wanted if name in kept.coming]
        for kept, name in mine:
            kept.coming[name] = anyio.Event()
        try:
            async with self._readers:
                found = await self._read(mine)
            with self.trace.span("intake", request_id):
                place(partial(self._take_in, found))
            for event in others:
                await event.wait()
        finally:
            for kept, name in mine:
                kept.coming.pop(name).set()

    async def _read(self, wanted: list[KeptName]) -> dict[KeptName, Any]:
        """Return what there is of some blocks."""
        found: dict[KeptName, Any] = {}
        begun_s = anyio.current_time()

        def load(kept: KeptPool, names: list[bytes]) -> dict[bytes, Any]:
            self._reading[KeptName(kept, names[0])] = begun_s
            try:
                return kept.load(names)
            finally:
                self._reading.pop(KeptName(kept, names[0]), None)

        async def read(kept: KeptPool, names: list[bytes]) -> None:
            loaded = await self.worker.run(lambda: load(kept, names))
            found.update((KeptName(kept, name), content) for name, content in loaded.items())

        async with anyio.create_task_group() as readers:
            for kept in dict.fromkeys(each.kept for each in wanted):
                names = [each.name for each in wanted if each.kept is kept]
                for reader in range(min(READERS, len(names))):
                    readers.start_soon(read, kept, names[reader::READERS])
        if wanted:
            size = sum(each.kept.store.size for each in wanted)
            self.costs.loaded(size, 1e3 * (anyio.current_time() - begun_s))
        return {each: found[each] for each in wanted if each in found}

    def _take_in(self, found: dict[KeptName, Any]) -> int:
        """Write what was loaded into the pools; returns how many blocks there were for it."""

        def of(kept: KeptPool) -> list[tuple[bytes, Any]]:
            return [(each.name, content) for each, content in found.items() if each.kept is kept]

        rounds = self.scheduler.rounds_in_flight()
        if self.snapshots is not None:
            self.snapshots.take_in(of(self.snapshots), states_in_flight(rounds))
        return self.blocks.take_in(of(self.blocks), blocks_in_flight(rounds))
