"""The replicas as one engine: a ledger of live requests at the door, each placed at a replica.

    generate ──> ledger ──> router ──> link ──> replica
        ^                                          │
        └──────────────── events <─────────────────┘

The ledger has what each client was sent. A replica that is lost or leaves takes no stream with it:
each of its requests is placed elsewhere in its pool, with the committed tokens, and goes on there
with the same bytes.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import anyio
import msgspec

from draftwerk.actors.admitting import check_request, events_max
from draftwerk.actors.client_prompts import Prompt
from draftwerk.actors.ledger import SUSPICION_MAX, Entry
from draftwerk.actors.mailbox import Inbox, mailbox
from draftwerk.actors.messages import Delta, Ended, Event, Failed, Started, Submit
from draftwerk.actors.monitoring.drain_rate import DrainRate
from draftwerk.actors.monitoring.snapshot import Snapshot
from draftwerk.actors.monitoring.trace import Trace
from draftwerk.actors.text import TextTools
from draftwerk.actors.tokenizer import located, prompt_field, tokens_of
from draftwerk.cluster.merging import merged
from draftwerk.cluster.placed_request import PlacedRequest
from draftwerk.cluster.pools import Pools
from draftwerk.cluster.prompt_blocks import block_keys
from draftwerk.cluster.protocol import EventBatch, LoadReport, ReplicaInfo
from draftwerk.cluster.replica_link import ReplicaLink
from draftwerk.speculative.requests.request import Options
from draftwerk.speculative.scheduler.running_set import ComputedCount

ENCODE_S = 10.0
"""A prompt that takes longer to tokenize is sent as it is, and refused by the replica."""
HOMELESS_S = 120.0
"""For a request without a replica; then it fails."""

log = logging.getLogger("draftwerk")


@dataclass(slots=True, eq=False)
class ReplicaSet:
    """Everything the door knows; the engine of the API."""

    text: TextTools
    tokens_max: int
    requests_max: int = 2**16
    """Live at once; what waits before that is admission's."""
    pools: Pools = field(default_factory=Pools)
    links: dict[str, ReplicaLink] = field(default_factory=dict[str, ReplicaLink])
    requests: dict[str, PlacedRequest] = field(default_factory=dict[str, PlacedRequest])
    placed: dict[str, PlacedRequest] = field(default_factory=dict[str, PlacedRequest])
    """By wire id."""
    moves: Counter[str] = field(default_factory=Counter[str])
    """Streams that went on at another replica, by why: lost, leaving, turned_away."""
    pauses_s: list[float] = field(default_factory=list[float])
    """The latest pauses of streams that lost their replica."""
    joined: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once there was a replica."""
    door_trace: Trace = field(default_factory=Trace)
    _drain_rate: DrainRate = field(default_factory=DrainRate)
    _closed_to: str = ""
    _empty: asyncio.Event = field(default_factory=asyncio.Event)

    # --- requests ---------------------------------------------------------------------------------

    @asynccontextmanager
    async def generate(
        self, prompt: Prompt, options: Options, *, request_id: str
    ) -> AsyncGenerator[Inbox[Event]]:
        """Submit a request and stream its events, as `Engine.generate` does."""
        self._admit(options, request_id)
        events, stream = mailbox[Event](events_max(options, self.tokens_max))
        submit = Submit(
            request_id=request_id,
            prompt=prompt,
            options=options,
            arrived_s=anyio.current_time(),
        )
        request = PlacedRequest(Entry(submit, events), prompt_field(prompt), ())
        self.requests[request_id] = request
        with stream:
            try:
                if isinstance(prompt, tuple):
                    request.tokens = prompt
                else:
                    await self._encode(request)
                self._place(request)
                yield stream
            finally:
                self._forget(request)

    def _admit(self, options: Options, request_id: str) -> None:
        check_request(
            options,
            request_id,
            live=self.requests,
            has_place=len(self.requests) < self.requests_max and bool(self.links),
            closed_to=self._closed_to,
            drain_rate=self._drain_rate,
        )

    async def _encode(self, request: PlacedRequest) -> None:
        """Tokenize a prompt, so that it can be routed by its blocks and is tokenized once."""
        submit = request.entry.submit
        with anyio.move_on_after(ENCODE_S), suppress(ValueError):
            tokens, spans = await asyncio.to_thread(tokens_of, self.text, submit.prompt)
            if tokens:
                request.tokens = tokens
                request.entry.submit = msgspec.structs.replace(
                    submit, prompt=tokens, options=located(submit.options, spans)
                )

    def _place(self, request: PlacedRequest) -> None:
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
            keys = block_keys(tokens, info.block_size, info.name_secret, submit.options.name_space)
            rows = max(submit.options.beam_width, submit.options.choices)
            now = anyio.current_time()
            reservation = router.choose(keys, len(tokens), now, rows, request.excluded)
        if reservation is None:
            request.homeless_s = request.homeless_s or anyio.current_time()
            return
        link = self.links[reservation.replica_id]
        request.pool, request.link, request.reservation = pool, link, reservation
        request.attempts += 1
        request.homeless_s = 0.0
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

    def _take_back(self, request: PlacedRequest) -> None:
        """Give a request's place back; nothing that its replica still sends counts."""
        if request.link is None or request.reservation is None:
            return
        self.placed.pop(request.wire_id, None)
        router = self.pools.routers.get(request.pool)
        if router is not None:
            router.release(request.reservation)
        request.link = request.reservation = None

    def _forget(self, request: PlacedRequest) -> None:
        """Drop a request whose client has gone or has had the last event."""
        del self.requests[request.entry.submit.request_id]
        if request.link is not None and not request.entry.over:
            request.link.cancel(request.wire_id)
        self._take_back(request)
        request.entry.events.close()
        self._drain_rate.record(anyio.current_time())
        if not self.requests:
            self._empty.set()

    def _move(self, request: PlacedRequest, reason: str) -> None:
        """Place a request anew, where its client's text ends."""
        self._take_back(request)
        if request.entry.over:
            return
        self.moves[reason] += 1
        request.moved_s = request.moved_s or anyio.current_time()
        with self.door_trace.span("door", f"{reason} {request.entry.submit.request_id}"):
            self._place(request)

    def _fail(self, request: PlacedRequest, reason: str) -> None:
        """Send a request its last event."""
        self._take_back(request)
        request_id = request.entry.submit.request_id
        self._deliver(request, Failed(request_id=request_id, kind="failed", reason=reason))

    def _deliver(self, request: PlacedRequest, event: Event) -> None:
        """Note what a client is being sent, and send it."""
        entry = request.entry
        if entry.over or (isinstance(event, Started) and entry.started):
            return
        if isinstance(event, Failed) and event.field == "prompt":
            event = msgspec.structs.replace(event, field=request.prompt_field)
        if isinstance(event, Delta | Ended) and request.moved_s is not None:
            self.pauses_s = [*self.pauses_s[-255:], anyio.current_time() - request.moved_s]
            request.moved_s = None
        entry.record(event)
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            entry.events.send_nowait(event)
        if entry.over:
            self._take_back(request)
            entry.events.close()

    # --- replicas ---------------------------------------------------------------------------------

    def join(self, link: ReplicaLink) -> None:
        """Take in a replica, and give it what has waited for one."""
        info = link.info
        if self.links and info.pool not in self.pools.routers:
            log.warning(
                "replica %s computes other bits than the rest (%s): it is a pool of its own",
                info.replica_id,
                info.pool,
            )
        self.links[info.replica_id] = link
        self.pools.add(info.pool, info.replica_id, info.block_size)
        self.joined.set()
        self._place_homeless()
        for each in list(self.links.values()):
            if not each.is_open and each.info.pool == info.pool:
                self.on_leaving(each)  # there was none that its streams could go to

    def lose(self, link: ReplicaLink) -> None:
        """Let the streams of a replica that is gone go on elsewhere."""
        info = link.info
        if self.links.get(info.replica_id) is not link:
            return
        del self.links[info.replica_id]
        self.pools.remove(info.pool, info.replica_id)
        for request in self._at(link):
            # It may have ended the replica: one that never comes farther is not tried for ever.
            committed = sum(map(len, request.entry.committed))
            request.entry.suspect(ComputedCount(committed))
            if request.entry.suspicion > SUSPICION_MAX:
                self._fail(request, "replica after replica was lost during this request")
            else:
                self._move(request, "lost")

    def on_events(self, link: ReplicaLink, batch: EventBatch) -> None:
        for wire_id, events in batch.events:
            request = self.placed.get(wire_id)
            if request is not None and request.link is link:
                for event in events:
                    self._deliver(request, event)

    def on_turned_away(self, link: ReplicaLink, request_id: str) -> None:
        request = self.placed.get(request_id)
        if request is not None and request.link is link:
            request.excluded.add(link.info.replica_id)
            self._move(request, "turned_away")

    def on_report(self, link: ReplicaLink, report: LoadReport) -> None:
        router = self.pools.routers[link.info.pool]
        router.correct(
            link.info.replica_id,
            report.received,
            report.work.queued_tokens,
            report.work.decode_rows,
            report.added,
            report.dropped,
        )
        self._place_homeless()

    def on_leaving(self, link: ReplicaLink) -> None:
        """Hand the streams of a replica that leaves over to the others of its pool.

        Where there is no other, they stay until their ends.
        """
        router = self.pools.routers[link.info.pool]
        router.close(link.info.replica_id)
        if any(each.is_open for each in router.replicas.values()):
            for request in self._at(link):
                wire_id = request.wire_id
                self._move(request, "leaving")
                link.cancel(wire_id)

    def tend(self) -> None:
        """Fail what has waited too long for a replica; called every second or so."""
        now = anyio.current_time()
        for request in list(self.requests.values()):
            if request.homeless_s and now - request.homeless_s > HOMELESS_S:
                self._fail(request, f"no replica of {request.pool or 'any pool'} came back in time")

    def _place_homeless(self) -> None:
        for request in list(self.requests.values()):
            if request.homeless_s and not request.entry.over:
                request.excluded.clear()
                self._place(request)

    def _at(self, link: ReplicaLink) -> list[PlacedRequest]:
        return [request for request in self.placed.values() if request.link is link]

    # --- state ------------------------------------------------------------------------------------

    @property
    def infos(self) -> list[ReplicaInfo]:
        """Every replica that is connected."""
        return [link.info for link in self.links.values()]

    def snapshot(self) -> Snapshot:
        """Return the sum of the replicas' states, and each replica's own."""
        return merged(
            {name: link.snapshot for name, link in self.links.items() if link.snapshot is not None},
            open_replicas=self.pools.open_replicas(),
            draining=bool(self._closed_to),
            moves=dict(self.moves),
        )

    def trace(self) -> list[dict[str, object]]:
        """Return what the door did lately; each replica's actors are traced there."""
        return self.door_trace.chrome()

    async def drain(self) -> None:
        """Refuse new requests and return when the last live one has ended."""
        self._closed_to = "the server is shutting down"
        while self.requests:
            self._empty.clear()
            await self._empty.wait()

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
