"""Admission control: a bounded queue, fair between API keys by the tokens that they cost.

    turn() ── room and empty queue ──> in
       │
       └── queue ── the key that was served least, its most urgent request first ──> in
             │
             └── full, or the wait would be too long ──> 503, with the time until a place is free

Each key has a meter of tokens served. A key that was idle starts at the meter of the request
admitted last, so that idle keys gain no claim and no key pays for tokens that others left unused.
"""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

from draftwerk.api.shared.errors import deadline_exceeded, overloaded, refused
from draftwerk.api.shared.request_timer import Clock

COST_GUESS = 256.0
"""Tokens that a request is charged before anything is known."""
LEAVES_KEPT = 64
RETRY_S_MIN, RETRY_S_MAX = 0.1, 60.0
SMOOTHING = 0.1


@dataclass(slots=True, order=True)
class Ticket:
    """One request's place, in the queue and then in the engine."""

    priority: int
    serial: int
    tenant: str = field(compare=False)
    weight: int = field(compare=False)
    """Places it takes in the engine."""
    granted: asyncio.Future[None] = field(compare=False)
    charged: float = field(compare=False, default=0.0)
    """Tokens paid so far, by guess."""
    inside: bool = field(compare=False, default=False)
    cost: float = field(compare=False, default=0.0)
    """Tokens it came to: what it is to pay in the end."""


@dataclass(slots=True)
class Admission:
    """Plain state and pure decisions; only `turn` waits."""

    places_max: int
    queue_max: int
    wait_max_s: float
    """A longer expected wait is refused at once."""
    clock: Clock
    places_used: int = 0
    serial: int = 0
    queues: dict[str, list[Ticket]] = field(default_factory=dict[str, list[Ticket]])
    """Waiting tickets by tenant, each a heap; never empty."""
    inside: Counter[str] = field(default_factory=Counter[str])
    served: dict[str, float] = field(default_factory=dict[str, float])
    """Tokens served by tenant."""
    floor: float = 0.0
    """Where the meter of a tenant starts that was idle."""
    mean_cost: float = COST_GUESS
    leaves: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=LEAVES_KEPT))
    """When the latest places became free, and how many."""

    @asynccontextmanager
    async def turn(
        self, tenant: str, weight: int = 1, priority: int = 0, within_s: float | None = None
    ) -> AsyncGenerator[Ticket, None]:
        """Wait for a place and hold it; set the ticket's cost before the block ends.

        Raises the 503 of a full server, and the 504 where no place is free within so many seconds.
        """
        ticket = self.join(tenant, weight, priority)
        try:
            try:
                async with asyncio.timeout(within_s):
                    await ticket.granted
            except TimeoutError:
                raise deadline_exceeded() from None
            yield ticket
        finally:
            self.leave(ticket)

    def join(self, tenant: str, weight: int, priority: int) -> Ticket:
        """Enter the queue, or the engine if there is room and the queue is empty."""
        if weight > self.places_max:
            raise refused(f"`prompt` has more than {self.places_max} prompts.", "prompt", "invalid")
        self.check_room(weight)
        if tenant not in self.queues and not self.inside[tenant]:
            self.served[tenant] = max(self.served.get(tenant, 0.0), self.floor)
        self.serial += 1
        granted = asyncio.get_running_loop().create_future()
        ticket = Ticket(priority, self.serial, tenant, weight, granted)
        heappush(self.queues.setdefault(tenant, []), ticket)
        self._grant()
        return ticket

    def leave(self, ticket: Ticket) -> None:
        """Give the place back, or leave the queue; the next request is admitted."""
        if ticket.inside:
            self.places_used -= ticket.weight
            self.inside[ticket.tenant] -= 1
            self.served[ticket.tenant] += ticket.cost - ticket.charged
            self.mean_cost += SMOOTHING * (ticket.cost - self.mean_cost)
            self.leaves.append((self.clock(), ticket.weight))
        elif ticket in self.queues.get(ticket.tenant, ()):
            self._forget(ticket)
        self._grant()

    def resize(self, places_max: int) -> None:
        """Hold more requests from now on, or fewer as those inside leave."""
        self.places_max = places_max
        self._grant()

    def check_room(self, weight: int = 1) -> None:
        """Refuse a newcomer who must wait, if the queue is full or would hold it too long."""
        must_wait = bool(self.queues) or self.places_used + weight > self.places_max
        too_long = self.waiting >= self.queue_max or self.expected_wait_s() > self.wait_max_s
        if must_wait and too_long:
            raise overloaded(self.retry_after_ms())

    @property
    def waiting(self) -> int:
        """Requests in the queue."""
        return sum(map(len, self.queues.values()))

    def expected_wait_s(self) -> float:
        """Return how long a newcomer would wait, at the pace of the latest leaves."""
        ahead = sum(ticket.weight for queue in self.queues.values() for ticket in queue)
        missing = self.places_used + ahead + 1 - self.places_max
        if missing <= 0 or len(self.leaves) < 2:
            return 0.0
        places = sum(weight for _, weight in self.leaves)
        return missing * (self.clock() - self.leaves[0][0]) / places

    def retry_after_ms(self) -> int:
        """Return when a refused client should come back."""
        expected_s = self.expected_wait_s() or 1.0
        return round(1000 * min(max(expected_s, RETRY_S_MIN), RETRY_S_MAX))

    def check(self) -> None:
        """Assert that the places add up and that no request waits beside a free one."""
        assert 0 <= self.places_used <= self.places_max
        assert all(self.queues.values())
        assert sum(self.inside.values()) <= self.places_used
        if self.queues:
            assert self.places_used + self._next().weight > self.places_max

    def _next(self) -> Ticket:
        """Return the ticket whose turn it is: of the key served least, the most urgent."""
        tenant = min(self.queues, key=lambda each: (self.served[each], self.queues[each][0].serial))
        return self.queues[tenant][0]

    def _grant(self) -> None:
        """Admit requests that fit, in order; behind a wide one that must wait, all wait."""
        while self.queues:
            ticket = self._next()
            if self.places_used + ticket.weight > self.places_max:
                return
            self._forget(ticket)
            if ticket.granted.cancelled():
                continue  # Its client has gone, and its own task has not run since.
            ticket.inside = True
            self.places_used += ticket.weight
            self.inside[ticket.tenant] += 1
            self.floor = max(self.floor, self.served[ticket.tenant])
            ticket.charged = ticket.cost = self.mean_cost
            self.served[ticket.tenant] += ticket.charged
            ticket.granted.set_result(None)

    def _forget(self, ticket: Ticket) -> None:
        """Take a ticket out of its queue."""
        queue = self.queues[ticket.tenant]
        if queue[0] is ticket:
            heappop(queue)
        else:
            queue.remove(ticket)
            heapify(queue)
        if not queue:
            del self.queues[ticket.tenant]
