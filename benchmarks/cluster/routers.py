"""The routers that the simulation compares, those of others with their published faults.

All but ours see every replica's present load at once and for nothing; ours sees reports that are
up to 0.2 s old, and what it placed itself.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from draftwerk_cluster.replica_load import RoutingCosts
from draftwerk_cluster.router import Router, mixed


class SeenReplica(Protocol):
    """What a router may look at."""

    index: int
    open_requests: int
    cached: Any

    def depth(self, keys: Sequence[int]) -> int: ...


class RoundRobin:
    """One after the other."""

    def __init__(self) -> None:
        self.next = 0

    def choose(
        self, replicas: Sequence[SeenReplica], keys: Sequence[int], session: int, now: float
    ) -> int:
        self.next += 1
        return self.next % len(replicas)


class LeastLoaded:
    """The fewest requests."""

    def choose(
        self, replicas: Sequence[SeenReplica], keys: Sequence[int], session: int, now: float
    ) -> int:
        return min(replicas, key=lambda each: each.open_requests).index


class ConsistentHash:
    """By the session: the highest of the hashes."""

    def choose(
        self, replicas: Sequence[SeenReplica], keys: Sequence[int], session: int, now: float
    ) -> int:
        return max(replicas, key=lambda each: mixed(mixed(session + 1) ^ mixed(each.index))).index


class PrefixAlone:
    """The longest cached prefix, load ignored; a miss goes to the smallest cache."""

    def choose(
        self, replicas: Sequence[SeenReplica], keys: Sequence[int], session: int, now: float
    ) -> int:
        best = max(replicas, key=lambda each: each.depth(keys))
        if best.depth(keys) > 0.5 * len(keys):
            return best.index
        return min(replicas, key=lambda each: len(each.cached)).index


class PrefixUnlessImbalanced:
    """The same, but one hot replica turns affinity off for all requests."""

    def choose(
        self, replicas: Sequence[SeenReplica], keys: Sequence[int], session: int, now: float
    ) -> int:
        loads = [each.open_requests for each in replicas]
        if max(loads) - min(loads) > 32 and max(loads) > 1.5 * min(loads):
            return loads.index(min(loads))
        return PrefixAlone().choose(replicas, keys, session, now)


class ByCost:
    """Ours, with any number of doors that take turns."""

    def __init__(self, block_size: int, replicas: int, doors: int, costs: RoutingCosts) -> None:
        self.doors = [Router(block_size, costs, doors) for _ in range(doors)]
        self.turn = 0
        for router in self.doors:
            for index in range(replicas):
                router.add(str(index))


def compared() -> dict[str, Any]:
    """Return the routers of others by name."""
    return {
        "round robin": RoundRobin(),
        "least loaded": LeastLoaded(),
        "consistent hash": ConsistentHash(),
        "prefix, load ignored": PrefixAlone(),
        "prefix unless imbalanced": PrefixUnlessImbalanced(),
    }
