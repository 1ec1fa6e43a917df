"""Pools: replicas whose engines compute the same bits, and so may take over each other's requests.

    pool = version of draftwerk / numeric fingerprint

New requests go to the pool with the most open replicas. A request stays in its pool to its end.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from draftwerk_cluster.replica_load import RoutingCosts
from draftwerk_cluster.router import Router


@dataclass(slots=True, eq=False)
class Pools:
    """A router for each pool."""

    costs: RoutingCosts = field(default_factory=RoutingCosts)
    routers: dict[str, Router] = field(default_factory=dict[str, Router])
    _doors: int = 1

    @property
    def doors(self) -> int:
        """Doors that send requests to these replicas."""
        return self._doors

    @doors.setter
    def doors(self, count: int) -> None:
        self._doors = count
        for router in self.routers.values():
            router.doors = count

    def add(self, pool: str, replica_id: str, block_size: int, *, hands_over: bool = False) -> None:
        """Take a replica into its pool."""
        if pool not in self.routers:
            self.routers[pool] = Router(block_size, self.costs, self._doors)
        self.routers[pool].add(replica_id)
        self.routers[pool].hands_over = hands_over

    def remove(self, pool: str, replica_id: str) -> None:
        """Forget a replica, and its pool with the last one."""
        self.routers[pool].remove(replica_id)
        if not self.routers[pool].replicas:
            del self.routers[pool]

    def primary(self) -> str:
        """Return the pool that new requests go to; empty without an open replica."""
        return largest(
            pool
            for pool, router in self.routers.items()
            for each in router.replicas.values()
            if each.is_open
        )

    def open_replicas(self) -> tuple[str, ...]:
        """Return the replicas that new requests go to: the open ones of that pool."""
        router = self.routers.get(self.primary())
        loads = () if router is None else router.replicas.values()
        return tuple(load.replica_id for load in loads if load.is_open)


def largest(pools: Iterable[str]) -> str:
    """Return the name that occurs most often, the first by name of those; empty without any."""
    counts = Counter(pools)
    return min(counts, key=lambda pool: (-counts[pool], pool), default="")
