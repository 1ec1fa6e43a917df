"""Tier two's place beside the pool: blocks that are lost here may be had from a store again.

    Tokenizer ──> Intake ──> Cache          a prompt's blocks are loaded before it is admitted
                    └── pool <── WriteBehind ──> store          what no table holds is kept

Both work between rounds: a block is read while it has a name, and written while nobody holds it and
no round under way can. A block that cannot be had is computed.
"""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol, assert_never

import anyio

from draftwerk.actors.devices.device import Worker
from draftwerk.actors.mailbox import Inbox, Outbox
from draftwerk.actors.messages import (
    CacheMessage,
    Cancel,
    Decided,
    Encoded,
    Fetched,
    Prefilled,
    PrefillProcess,
)
from draftwerk.actors.monitoring.trace import Trace
from draftwerk.cache.prefix import BlockNamer
from draftwerk.speculative.blend.rules import canonical_parts, segment_space
from draftwerk.speculative.protocol.step_report import StepReport
from draftwerk.speculative.scheduler.scheduler import Scheduler

LOAD_S = 1.0
"""No admission waits longer for a store: the prompt is computed instead."""
COPIES_MAX = 32
"""Blocks copied at their eviction that wait to be written; more are lost."""
WRITE_PAUSE_S = 0.01
"""Between two blocks written behind: a store is not to take the machine from the model."""
READERS = 2
WARM_MAX = 512
"""Blocks loaded at the start, before anybody asks: those that were used last."""
CHUNK_TOKENS = 64
"""Steps of fewer tokens say little about what a prompt's token costs."""
SMOOTHING = 0.2


class BlockStore(Protocol):
    """Blocks by name, outside the pages; `load` and `keep` are slow and may run on any thread."""

    def __contains__(self, name: bytes, /) -> bool: ...

    def load(self, name: bytes) -> Any | None:
        """Return a block's content, if the store has it whole."""
        ...

    def keep(self, name: bytes, content: Any) -> bool:
        """Keep a block's content; returns whether it is kept."""
        ...

    def remove(self, name: bytes) -> None:
        """Give up a block's content, quickly."""
        ...

    def copy(self, block: int) -> Any:
        """Return the content of a block of the pages, as it is now."""
        ...

    def put(self, block: int, content: Any) -> None:
        """Write a block of the pages, which no round under way may."""
        ...

    def newest(self, count: int) -> list[bytes]:
        """Return the names of the blocks that were used last, newest first."""
        ...

    def counters(self) -> dict[str, float]:
        """Return what was counted since start, and what there is now."""
        ...


@dataclass(slots=True)
class LoadCosts:
    """What loading a block takes, and what computing it would."""

    block_ms: float = 0.0
    """Of loading one; 0 until one was loaded."""
    token_ms: float = 0.0
    """Of computing a prompt's token; 0 until a chunk was computed."""

    def loaded(self, count: int, ms: float) -> None:
        self.block_ms = _smoothed(self.block_ms, ms / count)

    def computed(self, report: StepReport) -> None:
        if report.load.tokens >= CHUNK_TOKENS:
            self.token_ms = _smoothed(self.token_ms, report.device_ms / report.load.tokens)

    def pays(self, block_size: int) -> bool:
        """Return whether loading beats computing; while that is not known, it is tried."""
        return not self.token_ms or self.block_ms < self.token_ms * block_size


def _smoothed(before: float, now: float) -> float:
    return now if not before else before + SMOOTHING * (now - before)


@dataclass(slots=True)
class Intake:
    """Hands requests on to the cache, those first loaded whose blocks the store has."""

    inbox: Inbox[CacheMessage]
    cache: Outbox[CacheMessage]
    scheduler: Scheduler
    """Its pool takes in what is loaded."""
    namer: BlockNamer
    store: BlockStore
    worker: Worker
    trace: Trace = field(default_factory=Trace)
    costs: LoadCosts = field(default_factory=LoadCosts)
    _parked: dict[str, list[CacheMessage]] = field(default_factory=dict[str, list[CacheMessage]])
    """Requests whose blocks are on their way, and what follows them."""
    _coming: dict[bytes, anyio.Event] = field(default_factory=dict[bytes, anyio.Event])

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
                    case Decided() | Prefilled() | PrefillProcess() | Fetched():
                        pass  # come to the cache from another side
                    case _:
                        assert_never(message)
                self.cache.send_nowait(message)

    def _wanted(self, encoded: Encoded) -> list[bytes]:
        """Return the prompt's blocks that are to be loaded or are being loaded."""
        self.costs.computed(self.scheduler.report)
        self.costs.computed(self.scheduler.prefill.report)
        if not self.costs.pays(self.scheduler.pool.block_size):
            return []
        wanted: list[bytes] = []
        size = self.scheduler.pool.block_size
        for tokens, name_space in self._read_from_start(encoded):
            for name in self.namer.chain(tokens, size, name_space):
                if self.scheduler.pool.find(name) is None:
                    if name not in self.store and name not in self._coming:
                        break
                    if name not in wanted:
                        wanted.append(name)
        return wanted

    def _read_from_start(self, encoded: Encoded) -> Iterator[tuple[tuple[int, ...], str]]:
        """Yield the tokens whose blocks will be looked for, with their name space.

        That is the prompt, or its beginning up to the first segment, and each segment by itself.
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
            yield tokens[part.start : part.stop], segment_space(blend, part.start, space)

    def names(self, tokens: tuple[int, ...], name_space: str) -> Iterator[bytes]:
        """Return the names under which `BlockTable.match` will look for the blocks of a text."""
        return self.namer.chain(tokens[:-1], self.scheduler.pool.block_size, name_space)

    async def _load(self, request_id: str, wanted: list[bytes]) -> None:
        """Have the blocks in the pool, or as many as come in time, and hand the request on."""
        mine = [name for name in wanted if name not in self._coming]
        others = [self._coming[name] for name in wanted if name in self._coming]
        self._coming.update((name, anyio.Event()) for name in mine)
        begun = anyio.current_time()
        try:
            with anyio.move_on_after(LOAD_S) as patience:
                found = await self.read(mine)
                with self.trace.span("intake", request_id):
                    self.take_in(found)
                for event in others:
                    await event.wait()
            if mine and not patience.cancelled_caught:
                self.costs.loaded(len(mine), 1e3 * (anyio.current_time() - begun))
        finally:
            for name in mine:
                self._coming.pop(name).set()
        for message in self._parked.pop(request_id):
            self.cache.send_nowait(message)

    async def read(self, names: list[bytes]) -> dict[bytes, Any]:
        """Return what the store has of some blocks."""
        found: dict[bytes, Any] = {}

        async def read(part: list[bytes]) -> None:
            loaded = await self.worker.run(lambda: [self.store.load(name) for name in part])
            found.update(zip(part, loaded, strict=True))

        async with anyio.create_task_group() as readers:
            for reader in range(min(READERS, len(names))):
                readers.start_soon(read, names[reader::READERS])
        return {name: found[name] for name in names if found[name] is not None}

    def take_in(self, found: dict[bytes, Any]) -> int:
        """Write what was loaded into blocks of the pool; returns how many there were for it."""
        avoid, taken = self.scheduler.blocks_in_flight(), 0
        for name, content in found.items():
            block = self.scheduler.pool.adopt(name, avoid)
            if block is not None:
                self.store.put(block, content)
                taken += 1
        return taken

    async def warm(self, count: int) -> None:
        """Load the blocks that were used last, as far as the pool is empty."""
        for name in self.store.newest(min(count, self.scheduler.pool.free // 2)):
            content = await self.worker.run(lambda name=name: self.store.load(name))
            if content is not None:
                self.take_in({name: content})


@dataclass(slots=True)
class WriteBehind:
    """Keeps named blocks that no table holds any more; a `PoolWatcher`."""

    scheduler: Scheduler
    store: BlockStore
    worker: Worker
    pause_s: float = WRITE_PAUSE_S
    _waiting: OrderedDict[bytes, None] = field(default_factory=OrderedDict[bytes, None])
    """Names of cached blocks to be kept, longest cached first: at most those of the pool."""
    _copies: OrderedDict[bytes, Any] = field(default_factory=OrderedDict[bytes, Any])
    """Content of blocks that are gone from the pool."""
    _more: anyio.Event = field(default_factory=anyio.Event)

    def __post_init__(self) -> None:
        self.scheduler.pool.watcher = self

    def cached(self, block: int, name: bytes) -> None:
        """Note a block to be kept before it is evicted."""
        if name not in self.store:
            self._waiting[name] = None
            self._waiting.move_to_end(name)
            self._more.set()

    def evicted(self, block: int, name: bytes) -> None:
        """Copy a block that was not kept in time."""
        if self._waiting.pop(name, self) is None and len(self._copies) < COPIES_MAX:
            self._copies[name] = self.store.copy(block)
            self._more.set()

    def forgotten(self, name: bytes) -> None:
        """Keep nothing of a block that made its sequence fail."""
        self._waiting.pop(name, None)
        self._copies.pop(name, None)
        if name in self.store:
            self.store.remove(name)

    def copy_of(self, name: bytes) -> Any | None:
        """Return the content of a block that is gone from the pool and not kept yet."""
        return self._copies.get(name)

    async def run(self) -> None:
        """Keep one block after the other."""
        while True:
            await self._more.wait()
            self._more = anyio.Event()
            while await self._keep_one():  # noqa: ASYNC110 - the store's pace, not an event
                await anyio.sleep(self.pause_s)

    async def flush(self) -> None:
        """Keep all that is left, at once."""
        while await self._keep_one():
            pass

    async def _keep_one(self) -> bool:
        """Keep the next block; returns whether there was one."""
        taken = self._next()
        if taken is None:
            return False
        name, content = taken
        await self.worker.run(lambda: self.store.keep(name, content))
        return True

    def _next(self) -> tuple[bytes, Any] | None:
        if self._copies:
            return self._copies.popitem(last=False)
        while self._waiting:
            name, _ = self._waiting.popitem(last=False)
            block = self.scheduler.pool.find(name)
            # What has a name is not written to, whether a table holds it again or not.
            if block is not None and name not in self.store:
                return name, self.store.copy(block)
        return None
