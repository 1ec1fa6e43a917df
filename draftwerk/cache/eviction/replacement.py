"""Replacement: the order in which cached blocks are evicted.

The pool calls `add` when a named block loses its last holder, `remove` when it is held again or is
overwritten, and `evict` when memory is needed. Blocks of one sequence are added last first.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from heapq import heappop, heappush, nsmallest
from typing import NamedTuple

NONE: frozenset[int] = frozenset()
USES_MAX = 3
"""Reuses that are told apart."""
PRIOR = 20.0
"""The number that is taken to have been seen before anything was, in blocks."""
FADING = 0.9998
"""The factor by which counts fade at each block of their kind."""
TENANTS_MAX = 4096
"""Tenants whose reuse is known apart."""
FLOOR_SHARE = 0.5
"""The share of the cached blocks that is kept for all tenants alike; the rest is for those who
reuse most."""
DEPTH_DOUBLES = 256
"""Blocks before a block that double what computing it again takes: attention, beside products."""


class Origin(NamedTuple):
    """Where a named block comes from."""

    depth: int = 0
    """Blocks before it in its sequence."""
    name_space: str = ""
    """The tenant, or the salt that several share."""


class _Place(NamedTuple):
    """A cached block as it lies in the heap; the least is evicted first."""

    value: float
    number: int
    """The number of the insertion: of equals the oldest goes first, and so a sequence's end."""
    block: int


class _CachedBlock(NamedTuple):
    cached: _Place
    name: bytes
    name_space: str
    cost: float


def block_cost(depth: int) -> float:
    """Return what computing a block again takes, in blocks without any before them."""
    return 1.0 + depth / DEPTH_DOUBLES


class Reuse:
    """How often blocks are asked for again, by tenant and by how often they were already.

    A fading share of successes; tenants that were hardly seen are taken to be like all.
    """

    def __init__(self) -> None:
        self._all = [[PRIOR, 2.0 * PRIOR] for _ in range(USES_MAX + 1)]
        """(asked for again, all) by the uses before."""
        self._by_tenant: OrderedDict[str, list[list[float]]] = OrderedDict()

    def chance(self, name_space: str, uses: int) -> float:
        """Return the chance that a block is asked for again before it is long gone."""
        again, total = self._all[uses]
        tenant = self._by_tenant.get(name_space)
        if tenant is None:
            return again / total
        own_again, own_total = tenant[uses]
        return (own_again + PRIOR * again / total) / (own_total + PRIOR)

    def learn(self, name_space: str, uses: int, again: float, total: float) -> None:
        """Count blocks of a tenant that were used so often before."""
        tenant = self._by_tenant.setdefault(name_space, [[0.0, 0.0] for _ in self._all])
        self._by_tenant.move_to_end(name_space)
        if len(self._by_tenant) > TENANTS_MAX:
            self._by_tenant.popitem(last=False)
        for counts in (self._all[uses], tenant[uses]):
            counts[0] = FADING * counts[0] + again
            # A return counts as a success without a try: the share must stay one.
            counts[1] = max(FADING * counts[1] + total, counts[0])

    def check(self) -> None:
        """Assert that every chance is one."""
        assert len(self._by_tenant) <= TENANTS_MAX
        for counts in (self._all, *self._by_tenant.values()):
            assert all(0.0 <= again <= total for again, total in counts)


class CostAware:
    """Evicts what is cheapest to lose: time to compute again x chance of reuse, aged.

        value = age when added + chance of reuse x cost

    GreedyDual-Size (Cao and Irani, USITS 1997) with a learnt chance for its benefit. The age is the
    value last evicted, so that what is not used again goes in the end however dear. Where all
    blocks are as likely to be reused, this is least recently used; a scan is never reused, and goes
    first. A block that comes back after its eviction counts as reused. No tenant loses its last
    share: a block of a tenant at its floor is passed over, and stays for longer by its cost.
    """

    def __init__(self, cost: Callable[[int], float] = block_cost) -> None:
        """`cost` is of a block by the number before it."""
        self._cost = cost
        self._reuse = Reuse()
        self._entries: dict[int, _CachedBlock] = {}
        self._heap: list[_Place] = []
        """With entries that are cached no longer, to be skipped."""
        self._uses: dict[bytes, int] = {}
        """Uses of names that have a block and were reused; none is zero."""
        self._values: dict[bytes, float] = {}
        """Values of names whose block is held again: what followed it may still be cached."""
        self._evicted: OrderedDict[bytes, int] = OrderedDict()
        """Uses of names evicted of late, at most as many as blocks were ever cached."""
        self._cached_max = 0
        self._counts: Counter[str] = Counter()
        """Cached blocks by tenant; none is zero."""
        self._age = 0.0
        self._number = 0
        self._above = 0.0
        """Value of the block added last, for the one before it in its sequence."""
        self._after = Origin(-1)
        """Where that block would have to be from."""

    def add(self, block: int, name: bytes, origin: Origin) -> None:
        """Take in a named block that nobody holds any more."""
        uses = self._returned(name, origin.name_space)
        cost = self._cost(origin.depth)
        value = self._age + self._reuse.chance(origin.name_space, uses) * cost
        # Not below its value before it was held: what followed it may be cached, and needs it.
        value = max(value, self._values.pop(name, 0.0))
        if origin == self._after:
            value = max(value, self._above)  # what follows a block is of no use without it
        self._above, self._after = value, Origin(origin.depth - 1, origin.name_space)
        self._insert(block, value, name, origin.name_space, cost)
        self._counts[origin.name_space] += 1
        self._cached_max = max(self._cached_max, len(self._entries))

    def remove(self, block: int) -> None:
        """Take out a block: it is held again."""
        entry = self._entries[block]
        self._values[entry.name] = entry.cached.value
        self._forget(block)
        # Stale places are skipped when they come up; here, before they are most of the heap.
        if len(self._heap) > 2 * len(self._entries) + 64:
            self._heap = sorted(entry.cached for entry in self._entries.values())

    def reused(self, name: bytes, name_space: str) -> None:
        """Record that a request found a block of its prefix, cached or held by others."""
        uses = self._uses.get(name, 0)
        self._reuse.learn(name_space, uses, 1.0, 1.0)
        self._uses[name] = min(uses + 1, USES_MAX)

    def forget(self, name: bytes) -> None:
        """Drop what is known of a name: its block, which is held, is about to be overwritten."""
        self._values.pop(name, None)
        self._uses.pop(name, None)

    def evict(self, avoid: AbstractSet[int] = NONE) -> int | None:
        """Take out the block to be evicted and return it; None if there are but those to avoid."""
        avoided: list[_Place] = []
        block = self._evict(avoid, avoided)
        # Only this time: the next caller may take them.
        for place in avoided:
            heappush(self._heap, place)
        return block

    def _evict(self, avoid: AbstractSet[int], avoided: list[_Place]) -> int | None:
        while self._heap:
            cached = heappop(self._heap)
            entry = self._entries.get(cached.block)
            # Held, overwritten or valued anew since it was put here.
            if entry is None or entry.cached is not cached:
                continue
            if cached.block in avoid:
                avoided.append(cached)
                continue
            # Back at a higher value: a tenant at its floor is passed over, not exempt for ever.
            if not avoid and self._at_floor(entry.name_space):
                _, name, name_space, cost = entry
                self._insert(cached.block, cached.value + cost, name, name_space, cost)
                continue
            # The least that there was: no cached block may be older than the age.
            self._age = max(self._age, (avoided or [cached])[0].value)
            self._forget(cached.block)
            uses = self._uses.pop(entry.name, 0)
            self._reuse.learn(entry.name_space, uses, 0.0, 1.0)
            self._evicted[entry.name] = uses
            if len(self._evicted) > self._cached_max:
                self._evicted.popitem(last=False)
            return cached.block
        return None

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, block: object, /) -> bool:
        return block in self._entries

    def __iter__(self) -> Iterator[int]:
        return iter(self._entries)

    def check(self) -> None:
        """Assert that every cached block can be evicted, and that tenants' counts are theirs."""
        alive = [place for place in self._heap if self._is_current(place)]
        assert len(alive) == len(self._entries), "a cached block is in the heap once"
        counts = Counter(entry.name_space for entry in self._entries.values())
        assert dict(counts) == dict(self._counts), "a tenant's blocks are miscounted"
        least = nsmallest(1, alive)
        assert not least or least[0].value >= self._age, "a block is older than the age"
        assert len(self._evicted) <= self._cached_max
        self._reuse.check()

    def _returned(self, name: bytes, name_space: str) -> int:
        """Return how often a name was used, counting a return after its eviction."""
        uses = self._evicted.pop(name, None)
        if uses is not None:
            self._reuse.learn(name_space, uses, 1.0, 0.0)
            self._uses[name] = min(uses + 1, USES_MAX)
        return self._uses.get(name, 0)

    def _is_current(self, cached: _Place) -> bool:
        entry = self._entries.get(cached.block)
        return entry is not None and entry.cached is cached

    def _at_floor(self, name_space: str) -> bool:
        """Whether a tenant has no more than its share. Never all have: the shares are not all."""
        share = FLOOR_SHARE * len(self._entries) / len(self._counts)
        return self._counts[name_space] <= share

    def _insert(self, block: int, value: float, name: bytes, name_space: str, cost: float) -> None:
        self._number += 1
        cached = _Place(value, self._number, block)
        self._entries[block] = _CachedBlock(cached, name, name_space, cost)
        heappush(self._heap, cached)

    def _forget(self, block: int) -> None:
        entry = self._entries.pop(block)
        self._counts[entry.name_space] -= 1
        if not self._counts[entry.name_space]:
            del self._counts[entry.name_space]
