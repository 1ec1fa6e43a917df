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
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial

import anyio
import msgspec

from draftwerk.actors.devices.device import ThreadWorker, Worker
from draftwerk.actors.events.client_events import Event
from draftwerk.actors.mailbox import Inbox, mailbox
from draftwerk.actors.messages import Submit
from draftwerk.actors.monitoring.drain_rate import DrainRate
from draftwerk.actors.monitoring.snapshot import Snapshot
from draftwerk.actors.requests.admitting import check_request, events_max
from draftwerk.actors.requests.ledger import SUSPICION_MAX, Entry
from draftwerk.actors.requests.suspects import ComputedCount
from draftwerk.actors.texts.prompt_encoding import located, prompt_field, tokens_of
from draftwerk.actors.texts.text_tools import TextTools
from draftwerk.actors.tokenizer import TEXTS_AT_ONCE
from draftwerk.speculative.request import Options
from draftwerk.speculative.requests.client_prompts import Prompt
from draftwerk_cluster.merging import merged
from draftwerk_cluster.placed_request import PlacedRequest
from draftwerk_cluster.placements import Placements
from draftwerk_cluster.protocol import EventBatch, LoadReport, ReplicaInfo
from draftwerk_cluster.replica_link import ReplicaLink

ENCODE_S = 10.0
"""A prompt that takes longer to tokenize is sent as it is, and read by the replica."""
UNPLACED_S = 120.0
"""For a request without a replica; then it fails."""

log = logging.getLogger("draftwerk")


@dataclass(slots=True, eq=False)
class ReplicaSet(Placements):
    """Everything the door knows; the engine of the API."""

    text: TextTools
    tokens_max: int
    requests_max: int = 2**16
    """Live at once; what waits before that is admission's."""
    joined: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once there was a replica."""
    _worker: Worker = field(default_factory=lambda: ThreadWorker(TEXTS_AT_ONCE))
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
                self.place(request)
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
        with anyio.move_on_after(ENCODE_S), suppress(ValueError, OSError):
            tokens, spans = await self._worker.run(partial(tokens_of, self.text, submit.prompt))
            if tokens:
                request.tokens = tokens
                request.entry.submit = msgspec.structs.replace(
                    submit, prompt=tokens, options=located(submit.options, spans)
                )

    def _forget(self, request: PlacedRequest) -> None:
        """Drop a request whose client has gone or has had the last event."""
        del self.requests[request.entry.submit.request_id]
        if request.link is not None and not request.entry.over:
            request.link.cancel(request.wire_id)
        self.take_back(request)
        request.entry.events.close()
        self._drain_rate.record(anyio.current_time())
        if not self.requests:
            self._empty.set()

    # --- replicas ---------------------------------------------------------------------------------

    def join(self, link: ReplicaLink) -> None:
        """Take in a replica, and give it what has waited for one."""
        info = link.info
        if self.links and info.pool not in self.pools.routers:
            log.warning(
                "replica %s computes other bits than the rest, or has a cache of another size "
                "(%s): it is a pool of its own; --kv-memory SIZE gives all the same",
                info.replica_id,
                info.pool,
            )
        self.links[info.replica_id] = link
        self.pools.add(info.pool, info.replica_id, info.block_size, hands_over=info.hands_over)
        self.joined.set()
        self.place_waiting()
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
        for request in self.requests_at(link):
            # It may have ended the replica: one that never comes farther is not tried for ever.
            committed = sum(map(len, request.entry.committed))
            request.entry.suspect(ComputedCount(committed))
            if request.entry.suspicion > SUSPICION_MAX:
                self.fail(request, "replica after replica was lost during this request")
            else:
                self.move(request, "lost")

    def on_events(self, link: ReplicaLink, batch: EventBatch) -> None:
        for wire_id, events in batch.events:
            request = self.placed.get(wire_id)
            if request is not None and request.link is link:
                for event in events:
                    self.deliver(request, event)

    def on_turned_away(self, link: ReplicaLink, request_id: str) -> None:
        request = self.placed.get(request_id)
        if request is not None and request.link is link:
            request.excluded.add(link.info.replica_id)
            self.move(request, "turned_away")

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
        self.place_waiting()

    def on_leaving(self, link: ReplicaLink) -> None:
        """Hand the streams of a replica that leaves over to the others of its pool.

        Where there is no other, they stay until their ends.
        """
        router = self.pools.routers[link.info.pool]
        router.close(link.info.replica_id)
        if any(each.is_open for each in router.replicas.values()):
            for request in self.requests_at(link):
                wire_id = request.wire_id
                self.move(request, "leaving")
                link.cancel(wire_id)

    def tend(self) -> None:
        """Fail what has waited too long for a replica; called every second or so."""
        now = anyio.current_time()
        for request in list(self.requests.values()):
            if request.unplaced_s and now - request.unplaced_s > UNPLACED_S:
                self.fail(request, f"no replica of {request.pool or 'any pool'} came back in time")

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
