"""The known cache and work of a replica."""

from collections import OrderedDict
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingCosts:
    """The costs that are weighed against prompt tokens that have to be computed."""

    decode_tokens: float = 384.0
    """The cost of a text being generated to a newcomer, in prompt tokens (fitted with `python -m
    benchmarks.cluster.routing --fit`)."""
    tie_tokens: float = 16.0
    """Costs that differ by less are equal: a block."""
    fetched_share: float = 0.15
    """The cost of a block that is fetched from another replica, as a share of computing it."""
    hot_uses: float = 8.0
    """A block used more often than this by each of its holders in `HEAT_S` counts less where it
    is missing: computed once more it serves many, so hot prefixes come to have more holders."""


HEAT_S = 60.0
HEAT_MAX = 2**17
"""Blocks whose uses are counted, those used last."""


@dataclass(slots=True, eq=False)
class Reservation:
    """A request's place at a replica, from the choice to its end."""

    load: "ReplicaLoad"
    serial: int
    """The newest number of the requests that this router sent there."""
    keys: tuple[int, ...]
    """Its prompt's full blocks."""
    missing_tokens: float
    """Expected to be computed there."""
    rows: int
    """Texts that it generates."""
    is_pending: bool = True
    """Whether no report knows of it yet."""

    @property
    def replica_id(self) -> str:
        """Where it is."""
        return self.load.replica_id


@dataclass(slots=True, eq=False)
class ReplicaLoad:
    """The router's knowledge of one replica."""

    replica_id: str
    bit: int
    salt: int
    sent: int = 0
    queued_tokens: float = 0.0
    decode_rows: float = 0.0
    pending_tokens: float = 0.0
    """The tokens of reservations that no report knows of."""
    pending_rows: int = 0
    pending: OrderedDict[int, Reservation] = field(default_factory=OrderedDict[int, Reservation])
    keys: set[int] = field(default_factory=set[int])
    """Blocks that it reported as cached."""
    expected: dict[int, int] = field(default_factory=dict[int, int])
    """Blocks of live reservations, which it has or will have, each with how many."""
    is_open: bool = True
    """Whether it takes requests."""
