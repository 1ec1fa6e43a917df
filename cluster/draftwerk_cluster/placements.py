"""Live requests of the front, and the replica that computes each; a lost one's are placed anew."""

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field

import anyio
import msgspec

from draftwerk.actors.events.client_events import Event, Failed, Started
from draftwerk.actors.monitoring.trace import Trace
from draftwerk.cache.tables import BlockNamer
from draftwerk_cluster.placed_request import PlacedRequest
from draftwerk_cluster.pools import Pools
from draftwerk_cluster.protocol import block_key
from draftwerk_cluster.replica_link import ReplicaLink


@dataclass(slots=True, eq=False, kw_only=True)
class Placements:
    """Requests at replicas, and those that wait for one."""

    pools: Pools = field(default_factory=Pools)
    links: dict[str, ReplicaLink] = field(default_factory=dict[str, ReplicaLink])
    requests: dict[str, PlacedRequest] = field(default_factory=dict[str, PlacedRequest])
    placed: dict[str, PlacedRequest] = field(default_factory=dict[str, PlacedRequest])
    """By wire id."""
    moves: Counter[str] = field(default_factory=Counter[str])
    """Streams that went on at another replica, by why: lost, leaving, turned_away."""
    door_trace: Trace = field(default_factory=Trace)

    def place(self, request: PlacedRequest) -> None:
        """Send a request to a replica of its pool, or let it wait for one."""
        # A client that has no token yet can be served by any pool.
        begun = request.pool if any(request.entry.committed) else ""
        pool = begun or self.pools.primary()
        router = self.pools.routers.get(pool)
        submit = request.entry.resubmission() if request.attempts else request.entry.submit
        tokens = request.tokens + (submit.committed[0] if submit.committed else ())
        reservation = None
        if router is not None:
            info = next(link.info for link in self.links.values() if link.info.pool == pool)
            space = submit.options.name_space
            names = BlockNamer(info.name_secret).chain(tokens, info.block_size, space)
            keys = tuple(map(block_key, names))
            rows = max(submit.options.beam_width, submit.options.choices)
            now = anyio.current_time()
            reservation = router.choose(keys, len(tokens), now, rows, request.excluded)
        if reservation is None:
            request.unplaced_s = request.unplaced_s or anyio.current_time()
            return
        link = self.links[reservation.replica_id]
        request.pool, request.link, request.reservation = pool, link, reservation
        request.attempts += 1
        request.unplaced_s = 0.0
        self.placed[request.wire_id] = request
        link.place(
            msgspec.structs.replace(
                submit,
                request_id=request.wire_id,
                options=submit.options.waited(anyio.current_time() - (submit.arrived_s or 0.0)),
                arrived_s=None,  # clocks differ from machine to machine
            ),
            reservation.missing_tokens,
        )

    def take_back(self, request: PlacedRequest) -> None:
        """Give a request's place back; nothing that its replica still sends counts."""
        if request.link is None or request.reservation is None:
            return
        self.placed.pop(request.wire_id, None)
        router = self.pools.routers.get(request.pool)
        if router is not None:
            router.release(request.reservation)
        request.link = request.reservation = None

    def move(self, request: PlacedRequest, reason: str) -> None:
        """Place a request anew, where its client's text ends."""
        self.take_back(request)
        if request.entry.over:
            return
        self.moves[reason] += 1
        with self.door_trace.span("door", f"{reason} {request.entry.submit.request_id}"):
            self.place(request)

    def fail(self, request: PlacedRequest, reason: str) -> None:
        """Send a request its last event."""
        self.take_back(request)
        request_id = request.entry.submit.request_id
        self.deliver(request, Failed(request_id=request_id, kind="failed", reason=reason))

    def deliver(self, request: PlacedRequest, event: Event) -> None:
        """Note what a client is being sent, and send it."""
        entry = request.entry
        if entry.over or (isinstance(event, Started) and entry.started):
            return
        if isinstance(event, Failed) and event.field == "prompt":
            event = msgspec.structs.replace(event, field=request.prompt_field)
        entry.record(event)
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            entry.events.send_nowait(event)
        if entry.over:
            self.take_back(request)
            entry.events.close()

    def place_waiting(self) -> None:
        """Try again to place what waits for a replica."""
        for request in list(self.requests.values()):
            if request.unplaced_s and not request.entry.over:
                request.excluded.clear()
                self.place(request)

    def requests_at(self, link: ReplicaLink) -> list[PlacedRequest]:
        """Return the requests that a replica has."""
        return [request for request in self.placed.values() if request.link is link]

    def check(self) -> None:
        """Assert that ledger, routers and links agree."""
        for router in self.pools.routers.values():
            router.check()
        held = {
            id(each)
            for router in self.pools.routers.values()
            for load in router.replicas.values()
            for each in load.pending.values()
        }
        own = {id(each.reservation) for each in self.requests.values() if each.reservation}
        assert held <= own, "a reservation without a request"
        assert all(
            self.placed[each.wire_id] is each for each in self.requests.values() if each.link
        )
        assert all(each.link is not None for each in self.placed.values())
