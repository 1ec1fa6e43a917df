"""Tier two's place beside the pool: blocks that are lost here may be had from a store again.

    Tokenizer ──> Intake ──> Cache          a prompt's blocks are loaded before it is admitted
                    └── pool <── WriteBehind ──> store          what no table holds is kept

Both work between rounds: a block is read while it has a name, and written while nobody holds it and
no round under way can. A block that cannot be had is computed. Of a model with recurrent layers
snapshots go the same ways as blocks.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, assert_never

import anyio

from draftwerk.actors.devices.device import Worker
from draftwerk.actors.mailbox import Inbox, Outbox
from draftwerk.actors.messages import (
    CacheMessage,
    Cancel,
    Decided,
    Encoded,
    Fetched,
)
from draftwerk.actors.monitoring.trace import Trace
from draftwerk.actors.tier_two.kept_pool import KeptPool
from draftwerk.actors.tier_two.missing_head import MissingHead, to_load
from draftwerk.cache.prefix import BlockNamer
from draftwerk.speculative.blend.rules import canonical_parts
from draftwerk.speculative.protocol.step_report import StepReport
from draftwerk.speculative.scheduler.scheduler import Scheduler

LOAD_S = 1.0
"""No admission waits longer for a store: the prompt is computed instead."""
READERS = 2
PART = 32
"""Blocks that are loaded and taken in at once."""
CHUNK_TOKENS = 64
"""Steps of fewer tokens say little about what a prompt's token costs."""
SMOOTHING = 0.2


@dataclass(slots=True)
class LoadCosts:
    """What loading takes, and what computing would."""

    byte_ms: float = 0.0
    """Of loading one; 0 until something was loaded."""
    token_ms: float = 0.0
    """Of computing a prompt's token; 0 until a chunk was computed."""

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
    """What is to be had from a store."""

    kept: KeptPool
    name: bytes


@dataclass(slots=True)
class Intake:
    """Hands requests on to the cache, those first loaded whose blocks the store has."""

    inbox: Inbox[CacheMessage]
    cache: Outbox[CacheMessage]
    scheduler: Scheduler
    namer: BlockNamer
    blocks: KeptPool
    snapshots: KeptPool | None
    """Of a model with recurrent layers."""
    worker: Worker
    trace: Trace = field(default_factory=Trace)
    costs: LoadCosts = field(default_factory=LoadCosts)
    _parked: dict[str, list[CacheMessage]] = field(default_factory=dict[str, list[CacheMessage]])
    """Requests whose blocks are on their way, and what follows them."""

    async def run(self) -> None:
        """Load for several requests at once; no message overtakes one of its own request."""
        async with anyio.create_task_group() as beside:
            async for message in self.inbox:
                match message:
                    case Encoded():
                        wanted = self._wanted(message)
                        if wanted:
                            self._parked[message.request_id] = [message]
                            beside.start_soon(self._load, message.request_id, wanted)
                            continue
                    case Cancel():
                        if message.request_id in self._parked:
                            self._parked[message.request_id].append(message)
                            continue
                    case Decided() | Fetched():
                        pass  # come to the cache from another side
                    case _:
                        assert_never(message)
                self.cache.send_nowait(message)

    def _wanted(self, encoded: Encoded) -> list[KeptName]:
        """Return what of a prompt is to be loaded or is being loaded."""
        self.costs.computed(self.scheduler.report)
        wanted = dict[KeptName, None]()
        for tokens, name_space in self._read_from_start(encoded):
            wanted |= dict.fromkeys(self.missing(tokens, name_space))
        return [*wanted]

    def _read_from_start(self, encoded: Encoded) -> Iterator[tuple[tuple[int, ...], str]]:
        """Yield the tokens whose blocks will be looked for, with their name space.

        That is the prompt, or its beginning up to the first segment, and each segment as it is
        read.
        """
        committed = encoded.committed[0] if encoded.committed else ()
        tokens, size = (*encoded.tokens, *committed), self.scheduler.pool.block_size
        space, blend = encoded.options.name_space, encoded.blend
        parts = () if blend is None else canonical_parts(blend, len(encoded.tokens), size)
        if blend is None or not parts:
            yield tokens[:-1], space
            return
        yield tokens[: parts[0].start], space
        for part in parts:
            yield tuple(part.text(tokens)), space

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

    async def _load(self, request_id: str, wanted: list[KeptName]) -> None:
        """Have what is wanted, or as much as comes in time, and hand the request on."""
        with anyio.move_on_after(LOAD_S):
            await self.fetch_in_parts(wanted, request_id)
        for message in self._parked.pop(request_id):
            self.cache.send_nowait(message)

    async def fetch_in_parts(self, wanted: list[KeptName], request_id: str = "") -> None:
        """Load part after part, so that of what comes too slowly the first blocks are of use."""
        for start in range(0, len(wanted), PART):
            await self.fetch(wanted[start : start + PART], request_id)

    async def fetch(self, wanted: list[KeptName], request_id: str = "") -> int:
        """Load what is wanted into the pools, or wait for it; returns how much was loaded."""
        mine = [each for each in wanted if each.name not in each.kept.coming]
        others = [kept.coming[name] for kept, name in wanted if name in kept.coming]
        for kept, name in mine:
            kept.coming[name] = anyio.Event()
        begun = anyio.current_time()
        try:
            found = await self._read(mine)
            with self.trace.span("intake", request_id):
                taken = self._take_in(found)
            for event in others:
                await event.wait()
        finally:
            for kept, name in mine:
                kept.coming.pop(name).set()
        if mine:
            size = sum(each.kept.store.size for each in mine)
            self.costs.loaded(size, 1e3 * (anyio.current_time() - begun))
        return taken

    async def _read(self, wanted: list[KeptName]) -> dict[KeptName, Any]:
        """Return what there is of some blocks."""
        found: dict[KeptName, Any] = {}

        async def read(kept: KeptPool, names: list[bytes]) -> None:
            loaded = await self.worker.run(lambda: kept.load(names))
            found.update((KeptName(kept, name), content) for name, content in loaded.items())

        async with anyio.create_task_group() as readers:
            for kept in dict.fromkeys(each.kept for each in wanted):
                names = [each.name for each in wanted if each.kept is kept]
                for reader in range(min(READERS, len(names))):
                    readers.start_soon(read, kept, names[reader::READERS])
        return {each: found[each] for each in wanted if each in found}

    def _take_in(self, found: dict[KeptName, Any]) -> int:
        """Write what was loaded into the pools; returns how many blocks there were for it."""

        def of(kept: KeptPool) -> list[tuple[bytes, Any]]:
            return [(each.name, content) for each, content in found.items() if each.kept is kept]

        if self.snapshots is not None:
            self.snapshots.take_in(of(self.snapshots), self.scheduler.states_in_flight())
        return self.blocks.take_in(of(self.blocks), self.scheduler.blocks_in_flight())
