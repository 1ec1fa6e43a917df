"""Which replica computes a request: the one where it costs the least, its queue included.

    cost(r) = prompt tokens that r has not cached + tokens queued at r + decode load of r

Where replicas fetch blocks from each other, tokens that another one has cached count for less.
The load is what r reported last, and what was sent there since. As long as a report does not know
of a request, every other door is taken to have sent as much there unseen. Equal costs are
told apart by a consistent hash of the prompt's first block, so that requests that begin alike meet
at one replica even before any of them is cached.
"""

from collections import OrderedDict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256

from draftwerk_cluster.replica_load import HEAT_MAX, HEAT_S, ReplicaLoad, Reservation, RoutingCosts

MASK = 2**64 - 1


@dataclass(slots=True, eq=False)
class Router:
    """The replicas of one pool. Pure: time is an argument, and nothing waits."""

    block_size: int
    costs: RoutingCosts = field(default_factory=RoutingCosts)
    doors: int = 1
    """Doors that send requests to these replicas, this one included."""
    hands_over: bool = False
    """Whether replicas fetch blocks from each other."""
    replicas: dict[str, ReplicaLoad] = field(default_factory=dict[str, ReplicaLoad])
    _holders: dict[int, int] = field(default_factory=dict[int, int])
    """For each block the replicas that have it or soon will, a bit each."""
    _heat: OrderedDict[int, tuple[float, float]] = field(
        default_factory=OrderedDict[int, tuple[float, float]]
    )
    """For each block its uses lately, and when they were counted."""

    def add(self, replica_id: str) -> None:
        """Take in a replica without load and with an empty cache."""
        used = {each.bit for each in self.replicas.values()}
        bit = next(1 << index for index in range(len(used) + 1) if 1 << index not in used)
        salt = int.from_bytes(sha256(replica_id.encode()).digest()[:8], "little")
        self.replicas[replica_id] = ReplicaLoad(replica_id, bit, salt)

    def remove(self, replica_id: str) -> None:
        """Forget a replica and all it had."""
        load = self.replicas.pop(replica_id)
        for key in load.keys | load.expected.keys():
            self._clear(key, load.bit)

    def close(self, replica_id: str) -> None:
        """Choose a replica no more; what it has stays."""
        self.replicas[replica_id].is_open = False

    def choose(
        self,
        keys: Sequence[int],
        token_count: int,
        now: float,
        rows: int = 1,
        excluded: Collection[str] = (),
    ) -> Reservation | None:
        """Reserve a place for a request at the replica where it costs the least.

        `keys` are the full blocks of its prompt of `token_count` tokens, `now` is in seconds. None
        where no replica is open.
        """
        loads = [
            load
            for load in self.replicas.values()
            if load.is_open and load.replica_id not in excluded
        ]
        if not loads:
            return None
        prices = self._prices(keys, token_count, now)
        depths = self._depths(keys, loads)
        costs = [self.load_of(load) + prices[depths[load.bit]] for load in loads]
        bound = min(costs) + self.costs.tie_tokens
        meeting = self._meeting_key(keys)
        chosen = max(
            (load for load, cost in zip(loads, costs, strict=True) if cost < bound),
            # Without a full block there is nothing to meet at: the least loaded, then any.
            key=lambda load: mixed(load.salt ^ (meeting or load.sent)),
        )
        missing = token_count - depths[chosen.bit] * self.block_size
        return self._reserve(chosen, tuple(keys), float(max(missing, 1)), rows)

    def load_of(self, load: ReplicaLoad) -> float:
        """Return what a request waits for at a replica, in prompt tokens to compute."""
        weight = self.costs.decode_tokens
        reported = load.queued_tokens + weight * load.decode_rows
        return reported + self.doors * (load.pending_tokens + weight * load.pending_rows)

    def release(self, reservation: Reservation) -> None:
        """Give a place back; its replica may be gone."""
        load = reservation.load
        if self.replicas.get(load.replica_id) is not load:
            return
        self._report_knows(load, reservation)
        for key in reservation.keys:
            load.expected[key] -= 1
            if not load.expected[key]:
                del load.expected[key]
                if key not in load.keys:
                    self._clear(key, load.bit)

    def correct(
        self,
        replica_id: str,
        received: int,
        queued_tokens: float,
        decode_rows: float,
        added: Iterable[int] = (),
        dropped: Iterable[int] = (),
    ) -> None:
        """Replace what was assumed by what a replica reports.

        `received` of this router's requests are in its figures; later ones are counted beside it.
        """
        load = self.replicas[replica_id]
        load.queued_tokens, load.decode_rows = queued_tokens, decode_rows
        for serial in list(load.pending):
            if serial < received:
                self._report_knows(load, load.pending[serial])
        for key in added:
            load.keys.add(key)
            self._mark(key, load.bit)
        for key in dropped:
            load.keys.discard(key)
            if key not in load.expected:
                self._clear(key, load.bit)

    def cached_tokens(self, replica_id: str, keys: Sequence[int]) -> int:
        """Return how many tokens of a prompt a replica has, as far as is known here."""
        load = self.replicas[replica_id]
        return self._depths(keys, [load])[load.bit] * self.block_size

    def check(self) -> None:
        """Assert that loads and holders agree with the reservations and reports they came from."""
        bits = [load.bit for load in self.replicas.values()]
        assert len(set(bits)) == len(bits)
        for load in self.replicas.values():
            pending = load.pending.values()
            assert all(each.is_pending for each in pending)
            assert load.pending_rows == sum(each.rows for each in pending)
            assert abs(load.pending_tokens - sum(each.missing_tokens for each in pending)) < 1e-6
            known = load.keys | load.expected.keys()
            assert known == {key for key, mask in self._holders.items() if mask & load.bit}
        assert all(mask and not mask & ~sum(bits) for mask in self._holders.values())

    def _reserve(
        self, load: ReplicaLoad, keys: tuple[int, ...], missing: float, rows: int
    ) -> Reservation:
        reservation = Reservation(load, load.sent, keys, missing, rows)
        load.sent += 1
        load.pending[reservation.serial] = reservation
        load.pending_tokens += missing
        load.pending_rows += rows
        for key in keys:
            load.expected[key] = load.expected.get(key, 0) + 1
            self._mark(key, load.bit)
        return reservation

    def _report_knows(self, load: ReplicaLoad, reservation: Reservation) -> None:
        """Count a reservation no longer beside the reported load."""
        if reservation.is_pending:
            reservation.is_pending = False
            del load.pending[reservation.serial]
            load.pending_rows -= reservation.rows
            # Anew where nothing is left, so that rounding does not add up.
            left = load.pending_tokens - reservation.missing_tokens
            load.pending_tokens = left if load.pending else 0.0

    def _depths(self, keys: Sequence[int], loads: Sequence[ReplicaLoad]) -> dict[int, int]:
        """Return for each replica's bit how many of the first blocks it has."""
        depths = {load.bit: len(keys) for load in loads}
        mask = sum(depths)
        for index, key in enumerate(keys):
            lost = mask & ~self._holders.get(key, 0)
            while lost:
                bit = lost & -lost
                depths[bit] = index
                lost ^= bit
                mask ^= bit
            if not mask:
                break
        return depths

    def _meeting_key(self, keys: Sequence[int]) -> int:
        """Return the block by which requests of equal cost meet: the first that nobody has.

        What begins with blocks that some have, and goes on otherwise, is spread: were it the very
        first block, doors that do not see each other's choices would all choose the same replica.
        """
        return next((key for key in keys if key not in self._holders), keys[-1] if keys else 0)

    def _prices(self, keys: Sequence[int], token_count: int, now: float) -> list[float]:
        """Return what a prompt costs in prefill at a replica that has its first j blocks, for
        each j; hot blocks count less, and those to be fetched. Counts this use of each block."""
        prices = [0.0] * (len(keys) + 1)
        prices[-1] = max(token_count - len(keys) * self.block_size, 1)
        for index in range(len(keys) - 1, -1, -1):
            holders = self._holders.get(keys[index], 0).bit_count()
            most = self.costs.fetched_share if holders and self.hands_over else 1.0
            # The other doors have counted as many of their own.
            uses = self.doors * self._used(keys[index], now) / max(holders, 1)
            share = min(most, self.costs.hot_uses / uses)
            prices[index] = prices[index + 1] + share * self.block_size
        return prices

    def _used(self, key: int, now: float) -> float:
        """Count a use of a block, and return its uses lately: an average that fades."""
        count, counted_at = self._heat.pop(key, (0.0, now))
        count = 1 + count * 0.5 ** ((now - counted_at) / HEAT_S)
        self._heat[key] = (count, now)
        if len(self._heat) > HEAT_MAX:
            self._heat.popitem(last=False)
        return count

    def _mark(self, key: int, bit: int) -> None:
        self._holders[key] = self._holders.get(key, 0) | bit

    def _clear(self, key: int, bit: int) -> None:
        left = self._holders.get(key, 0) & ~bit
        if left:
            self._holders[key] = left
        else:
            self._holders.pop(key, None)


def mixed(value: int) -> int:
    """Return 64 well mixed bits of a number (splitmix64's finisher)."""
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB & MASK
    return value ^ (value >> 31)
