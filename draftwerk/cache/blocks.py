"""The block pool: hands out fixed-size KV blocks, counts their holders, keeps reusable ones.

    free     no table holds it, nothing in it can be reused
    used     held by one or more block tables
    cached   no table holds it, but it has a name: a request with the same prefix may revive it

free + used + cached = capacity, always.
"""

from collections.abc import Iterable, KeysView
from collections.abc import Set as AbstractSet

from draftwerk.cache.eviction.replacement import CostAware, Origin

NOWHERE = Origin()


class PoolWatcher:
    """Learns of named blocks before their content goes; this one does nothing about it."""

    def cached(self, block: int, name: bytes) -> None:
        """Note that no table holds a named block any more."""

    def evicted(self, block: int, name: bytes) -> None:
        """Note that a cached block is about to be used for something else."""

    def forgotten(self, name: bytes) -> None:
        """Note that a name's content must not be served again, wherever it is kept."""


class BlockPool:
    """Owns `capacity` block ids from `first` on."""

    def __init__(
        self, capacity: int, block_size: int, order: CostAware | None = None, first: int = 0
    ) -> None:
        """`order` says which cached block goes first."""
        self.capacity = capacity
        self.ids = range(first, first + capacity)
        self.block_size = block_size
        """Slots (tokens) in a block."""
        self._free = list(self.ids)[::-1]
        """The last freed is taken first: its memory is there already, and warm."""
        self._holders = [0] * self.ids.stop
        self._cached = CostAware() if order is None else order
        self._block_by_name: dict[bytes, int] = {}
        self._named: dict[int, tuple[bytes, Origin]] = {}
        self.watcher = PoolWatcher()

    @property
    def free(self) -> int:
        return len(self._free)

    @property
    def cached(self) -> int:
        return len(self._cached)

    @property
    def used(self) -> int:
        return self.capacity - len(self._free) - len(self._cached)

    @property
    def names(self) -> KeysView[bytes]:
        """Names of the blocks that can be reused, as a live view."""
        return self._block_by_name.keys()

    @property
    def available(self) -> int:
        """Blocks that `take` could hand out."""
        return len(self._free) + len(self._cached)

    def blocks_for(self, slots: int) -> int:
        """Return how many blocks `slots` slots fill."""
        return -(-slots // self.block_size)

    def take(self, count: int) -> list[int] | None:
        """Take `count` unnamed blocks, held once each, or none at all."""
        # Before anything is evicted: who does not get all its blocks must leave the cache as it
        # was.
        if count > self.available:
            return None
        while len(self._free) < count:
            evicted = self._evict_next()
            assert evicted is not None, "as many are available"
        blocks = [self._free.pop() for _ in range(count)]
        for block in blocks:
            self._holders[block] = 1
        return blocks

    def adopt(self, name: bytes, avoid: AbstractSet[int]) -> int | None:
        """Name a block, none in `avoid`, for content to be loaded, which its caller holds:
        the longest free, or what is evicted next. None without one, or if the name is known."""
        if name in self._block_by_name:
            return None
        block = next((free for free in self._free if free not in avoid), None)
        if block is None:
            block = self._evict_next(avoid)
            if block is None:
                return None
        self._free.remove(block)
        self.name(block, name)
        self._cached.add(block, name, NOWHERE)
        return block

    def _evict_next(self, avoid: AbstractSet[int] = frozenset()) -> int | None:
        """Make the next cached block a free one, or return None if all are to be avoided."""
        block = self._cached.evict(avoid)
        if block is None:
            return None
        name, _ = self._named.pop(block)
        del self._block_by_name[name]
        # Before it can be taken: tier two may still have to read what is in it.
        self.watcher.evicted(block, name)
        self._free.append(block)
        return block

    def hold(self, block: int) -> None:
        """Add a holder to a used or cached block."""
        # What is held cannot be evicted.
        if block in self._cached:
            self._cached.remove(block)
        self._holders[block] += 1

    def reuse(self, name: bytes) -> int:
        """Hold the block of a name because a request's prompt begins with its tokens."""
        block = self._block_by_name[name]
        self._cached.reused(name, self._named[block][1].name_space)
        self.hold(block)
        return block

    def drop(self, blocks: Iterable[int]) -> None:
        """Remove a holder from each block; named ones without another stay as cached. A prefix
        outlives what follows it if a table's blocks come last first."""
        for block in blocks:
            self._holders[block] -= 1
            if self._holders[block] == 0:
                # Only what has a name can be found again; the rest is as good as empty.
                if block in self._named:
                    name, origin = self._named[block]
                    self._cached.add(block, name, origin)
                    self.watcher.cached(block, name)
                else:
                    self._free.append(block)

    def shared(self, blocks: Iterable[int]) -> list[int]:
        """Return which of these have another holder, for whom a write changes what it reads."""
        return [block for block in blocks if self._holders[block] > 1]

    def name(self, block: int, name: bytes, origin: Origin = NOWHERE) -> None:
        """Make a held, full, committed block findable; the first block of a name keeps it."""
        # Two sequences may compute one prefix side by side; to be found, one block is enough.
        if name not in self._block_by_name and block not in self._named:
            self._block_by_name[name] = block
            self._named[block] = name, origin

    def unname(self, blocks: Iterable[int]) -> list[bytes]:
        """Make held blocks unfindable that are to be overwritten; returns the names they had."""
        names = [self._named.pop(block)[0] for block in blocks if block in self._named]
        for name in names:
            del self._block_by_name[name]
            self._cached.forget(name)
        return names

    def forget(self, blocks: Iterable[int]) -> None:
        """Make held blocks unfindable for good, because what is in them is of no use."""
        for name in self.unname(blocks):
            self.watcher.forgotten(name)

    def find(self, name: bytes) -> int | None:
        """Return the block of that name, used or cached."""
        return self._block_by_name.get(name)

    def holders(self, block: int) -> int:
        return self._holders[block]

    def check(self) -> None:
        """Assert every invariant."""
        free, cached = set(self._free), set(self._cached)
        assert len(free) == len(self._free), "a block is free twice"
        assert not free & cached, "a block is both free and cached"
        assert all(count >= 0 for count in self._holders), (
            "a block was dropped more often than held"
        )
        unheld = {block for block in self.ids if not self._holders[block]}
        assert unheld == free | cached, "free + used + cached must be every block"
        assert cached <= self._named.keys(), "a cached block has no name"
        assert not free & self._named.keys(), "a free block has a name"
        names = {block: name for block, (name, _) in self._named.items()}
        blocks = {block: name for name, block in self._block_by_name.items()}
        assert names == blocks, "names and blocks disagree"
        self._cached.check()
