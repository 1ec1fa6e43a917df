"""Keeps what no table holds any more: behind the answers, at a pace that leaves the machine."""

import logging
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

import anyio

from draftwerk.actors.devices.device import Worker
from draftwerk.actors.tier_two.kept_pool import KeptPool
from draftwerk.cache.blocks import PoolWatcher

log = logging.getLogger("draftwerk")
COPIES_MAX = 32
"""Blocks copied at their eviction that wait to be written; more are lost."""
WRITE_PAUSE_S = 0.01
"""Between two blocks written behind: a store is not to take the machine from the model."""


@dataclass(slots=True)
class WriteBehind(PoolWatcher):
    """Keeps named blocks that no table holds any more."""

    kept: KeptPool
    worker: Worker
    pause_s: float = WRITE_PAUSE_S
    copies_max: int = COPIES_MAX
    _waiting: OrderedDict[bytes, None] = field(default_factory=OrderedDict[bytes, None])
    """Names of cached blocks to be kept, longest cached first: at most those of the pool."""
    _more: anyio.Event = field(default_factory=anyio.Event)
    _one_at_a_time: anyio.Lock = field(default_factory=anyio.Lock)

    def __post_init__(self) -> None:
        self.kept.pool.watcher = self

    def cached(self, block: int, name: bytes) -> None:
        """Note a block to be kept before it is evicted."""
        if name not in self.kept.passing and name not in self.kept.store:
            self._waiting[name] = None
            self._waiting.move_to_end(name)
            self._more.set()

    def evicted(self, block: int, name: bytes) -> None:
        """Copy a block that was not kept in time."""
        copies = self.kept.copies
        if self._waiting.pop(name, self) is None and len(copies) < self.copies_max:
            copies[name] = self.kept.store.copy(block)
            self._more.set()

    def forgotten(self, name: bytes) -> None:
        """Keep nothing of a block that made its sequence fail."""
        self._waiting.pop(name, None)
        self.kept.copies.pop(name, None)
        if name in self.kept.store:
            self.kept.store.remove(name)

    async def run(self) -> None:
        """Keep one block after the other."""
        while True:
            await self._more.wait()
            self._more = anyio.Event()
            while await self._keep_one():  # noqa: ASYNC110 - the store's pace, not an event
                await anyio.sleep(self.pause_s)

    async def flush(self) -> None:
        """Keep all that is left, at once; what is being written is kept as well.

        A text's blocks are cached from its end to its start: from the newest back, each one that
        is kept can be found, and the newest texts come first, should the time be over.
        """
        try:
            while await self._keep_one(last=True):
                pass
        finally:
            if left := len(self._waiting) + len(self.kept.copies):
                log.warning(
                    "of the cache, %d blocks are not in the store: it takes them too slowly", left
                )

    async def _keep_one(self, last: bool = False) -> bool:
        """Keep the next block; returns whether there was one."""
        async with self._one_at_a_time:
            taken = self._next(last)
            if taken is None:
                return False
            name, content = taken
            await self.worker.run(lambda: self.kept.store.keep(name, content))
            return True

    def _next(self, last: bool) -> tuple[bytes, Any] | None:
        if self.kept.copies and not (last and self._waiting):
            return self.kept.copies.popitem(last)
        while self._waiting:
            name, _ = self._waiting.popitem(last)
            block = self.kept.pool.find(name)
            # What has a name is not written to, whether a table holds it again or not.
            if block is not None and name not in self.kept.store:
                return name, self.kept.store.copy(block)
        return None
