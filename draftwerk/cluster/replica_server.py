"""An engine as a replica: doors connect to it, send requests, and read their events.

A connection that ends cancels what came over it. What a door does about that is its own affair: it
has each request's committed tokens, and another replica goes on from them.
"""

import asyncio
import hmac
from collections.abc import AsyncGenerator, KeysView
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field
from secrets import token_bytes
from typing import Protocol

import anyio
import msgspec

from draftwerk.actors.client_prompts import Prompt
from draftwerk.actors.errors import DrainingError, OverloadedError
from draftwerk.actors.mailbox import Inbox, receive_all
from draftwerk.actors.messages import Cancel, Delta, Ended, Event, Failed
from draftwerk.actors.monitoring.snapshot import Snapshot
from draftwerk.cluster.frame_stream import FrameStream, LinkLostError
from draftwerk.cluster.protocol import (
    Challenge,
    Depart,
    EventBatch,
    FromDoor,
    Hello,
    Leaving,
    LoadReport,
    Placement,
    ReplicaInfo,
    ReplicaWork,
    TurnedAway,
    Welcome,
    block_key,
    proof_of,
)
from draftwerk.speculative.requests.request import Options

REPORT_S = 0.2
"""Between two reports of the load."""
SNAPSHOT_EVERY = 5
"""Reports from one snapshot to the next."""
LOADS_MAX = 4
"""Reports of the load alone, from one with the blocks to the next: one for each door, as each is
blind to what the others send until it is told."""
HELLO_S = 5.0
"""For a connection to show that it is a door's."""
NEVER_S = 1e9
PACE_S = 1.0
PACE_SHARE = 0.3
"""Of the latest second in the pace of prefill."""
BROKEN_OFF = "the stream ended before its last event"
DECODER = msgspec.msgpack.Decoder(FromDoor)


class ReplicaEngine(Protocol):
    """The part of `actors.engine.Engine` that a replica needs."""

    def generate(
        self,
        prompt: Prompt,
        options: Options,
        *,
        request_id: str,
        committed: tuple[tuple[int, ...], ...] = (),
        ended: tuple[int, ...] = (),
    ) -> AbstractAsyncContextManager[Inbox[Event]]: ...

    def snapshot(self) -> Snapshot: ...

    def cached_names(self) -> KeysView[bytes]: ...


@dataclass(slots=True, eq=False)
class LiveRequest:
    """What a request still costs here."""

    tokens: float
    """To be computed before its first token, as the door expects; 0 once that has come."""
    rows: int
    """Texts that it generates now."""
    choices_left: int
    """Of the texts that its client waits for; a beam search generates more than these."""
    since_s: float
    """When it came, on the event loop's clock."""


@dataclass(slots=True, eq=False)
class ReplicaServer:
    """Every connection of a replica, and the work they brought."""

    engine: ReplicaEngine
    info: ReplicaInfo
    secret: bytes
    on_depart: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once a command has asked this replica to leave."""
    doors: set["DoorConnection"] = field(default_factory=set["DoorConnection"])
    live: set[LiveRequest] = field(default_factory=set[LiveRequest])
    is_leaving: bool = False
    _idle: asyncio.Event = field(default_factory=asyncio.Event)
    _connections: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])
    _prefill_tokens_s: float = 0.0
    """Prompt tokens computed in a second lately, while some waited; 0 where that is not known."""

    @asynccontextmanager
    async def listening(self, host: str, port: int = 0) -> AsyncGenerator[int]:
        """Take connections for the length of the block; yields the port."""
        server = await asyncio.start_server(self._serve, host, port)
        watch = asyncio.create_task(self.watch_pace())
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            watch.cancel()
            server.close()
            for door in list(self.doors):
                door.frames.abort()
            if self._connections:
                await asyncio.wait(self._connections)

    async def leave(self, limit_s: float) -> None:
        """Have every stream go on elsewhere; returns once none is left here, or at the limit."""
        self.is_leaving = True
        for door in self.doors:
            door.frames.send(Leaving())
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                while self.live:
                    self._idle.clear()
                    await self._idle.wait()

    def work(self) -> ReplicaWork:
        """Return what this replica has to do."""
        now = asyncio.get_running_loop().time()
        queued = sum(each.tokens for each in self.live)
        waits = [now - each.since_s for each in self.live if each.tokens]
        pace = self._prefill_tokens_s
        return ReplicaWork(
            queued_tokens=queued,
            decode_rows=sum(each.rows for each in self.live if not each.tokens),
            requests=len(self.live),
            wait_s=max([queued / pace if pace else 0.0, *waits]),
        )

    async def watch_pace(self) -> None:
        """Measure how quickly prompts are computed while some wait."""
        computed = computed_tokens(self.engine.snapshot())
        while True:
            waited = any(each.tokens for each in self.live)
            await asyncio.sleep(PACE_S)
            before, computed = computed, computed_tokens(self.engine.snapshot())
            if waited and computed > before:
                pace = (computed - before) / PACE_S
                self._prefill_tokens_s += PACE_SHARE * (pace - (self._prefill_tokens_s or pace))
                self._prefill_tokens_s = self._prefill_tokens_s or pace

    def ended(self, request: LiveRequest) -> None:
        """Forget a request of which nothing is left here."""
        self.live.discard(request)
        if not self.live:
            self._idle.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        frames = FrameStream[FromDoor](reader, writer, DECODER)
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            door = await self._greeted(frames)
            if door is not None:
                await door.run()
        except LinkLostError:
            frames.abort()
        finally:
            self._connections.discard(task)
            await frames.close()

    async def _greeted(self, frames: FrameStream[FromDoor]) -> "DoorConnection | None":
        """Return a connection that knows the secret; None for another, or for a command's."""
        nonce = token_bytes(16)
        frames.send(Challenge(nonce=nonce))
        hello = await frames.receive(HELLO_S)
        if not isinstance(hello, Hello) or not hmac.compare_digest(
            hello.proof, proof_of(self.secret, "door", nonce)
        ):
            return None
        proof = proof_of(self.secret, "replica", hello.nonce)
        frames.send(Welcome(info=self.info, proof=proof))
        return DoorConnection(self, frames, hello.door_id)


@dataclass(slots=True, eq=False)
class DoorConnection:
    """One door's requests."""

    server: ReplicaServer
    frames: FrameStream[FromDoor]
    door_id: str
    received: int = 0
    tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict[str, asyncio.Task[None]])
    outgoing: list[tuple[str, tuple[Event, ...]]] = field(
        default_factory=list[tuple[str, tuple[Event, ...]]]
    )
    reported: frozenset[bytes] = frozenset()

    async def run(self) -> None:
        """Serve the door until it is gone; then cancel what it had here."""
        self.server.doors.add(self)
        if self.server.is_leaving:
            self.frames.send(Leaving())
        reports = asyncio.create_task(self._report())
        try:
            while True:
                self._take(await self.frames.receive(NEVER_S))
        finally:
            self.server.doors.discard(self)
            tasks = [reports, *self.tasks.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _take(self, message: FromDoor) -> None:
        match message:
            case Placement():
                self.received += 1
                request_id = message.submit.request_id
                task = asyncio.create_task(self._generate(message))
                self.tasks[request_id] = task
                task.add_done_callback(lambda _: self.tasks.pop(request_id, None))
            case Cancel():
                task = self.tasks.get(message.request_id)
                if task is not None:
                    task.cancel()
            case Depart():
                self.server.on_depart.set()
            case Hello():
                raise LinkLostError("a second greeting")

    async def _generate(self, placement: Placement) -> None:
        """Run one request, and pass its events on."""
        server, submit = self.server, placement.submit
        options = submit.options
        if server.is_leaving:
            self.frames.send(TurnedAway(request_id=submit.request_id))
            return
        choices = options.choices - len(submit.ended)
        request = LiveRequest(
            placement.missing_tokens,
            max(options.beam_width, choices),
            choices,
            asyncio.get_running_loop().time(),
        )
        server.live.add(request)
        try:
            async with server.engine.generate(
                submit.prompt,
                options,
                request_id=f"{self.door_id}/{submit.request_id}",
                committed=submit.committed,
                ended=submit.ended,
            ) as stream:
                await self._pass_on(submit.request_id, stream, request)
        except (OverloadedError, DrainingError):
            self.frames.send(TurnedAway(request_id=submit.request_id))
        finally:
            server.ended(request)

    async def _pass_on(self, request_id: str, stream: Inbox[Event], request: LiveRequest) -> None:
        while True:
            try:
                # All that one piece of text means is there at once, and goes into one batch.
                events = await receive_all(stream)
            except anyio.EndOfStream:
                if request.choices_left:  # its client would wait for ever
                    broken = Failed(request_id=request_id, kind="failed", reason=BROKEN_OFF)
                    self._send(request_id, (broken,))
                return
            if any(isinstance(each, Failed) and each.kind == "failed" for each in events) and (
                self.server.engine.snapshot().draining
            ):
                # The engine has ended: that is this replica's fault, and not the request's.
                self.frames.abort()
                return
            for event in events:
                if isinstance(event, Delta | Ended):
                    request.tokens = 0.0
                request.rows -= isinstance(event, Ended)
                request.choices_left -= isinstance(event, Ended)
                if isinstance(event, Failed):
                    request.choices_left = 0
            self._send(request_id, tuple(events))

    def _send(self, request_id: str, events: tuple[Event, ...]) -> None:
        """Send events with all others of this turn of the event loop."""
        if not self.outgoing:
            asyncio.get_running_loop().call_soon(self._flush)
        self.outgoing.append((request_id, events))

    def _flush(self) -> None:
        self.frames.send(EventBatch(events=tuple(self.outgoing)))
        self.outgoing.clear()

    async def _report(self) -> None:
        """Send the load again and again, and what is cached with some of the reports."""
        count = 0
        while True:
            self.frames.send(self._next_report(with_snapshot=count % SNAPSHOT_EVERY == 0))
            count += 1
            loads = min(max(len(self.server.doors), 1), LOADS_MAX)
            for _ in range(loads - 1):
                await asyncio.sleep(REPORT_S / loads)
                self.frames.send(LoadReport(received=self.received, work=self.server.work()))
            await asyncio.sleep(REPORT_S / loads)

    def _next_report(self, with_snapshot: bool) -> LoadReport:
        engine = self.server.engine
        names = frozenset(engine.cached_names())
        added, dropped = names - self.reported, self.reported - names
        self.reported = names
        return LoadReport(
            received=self.received,
            work=self.server.work(),
            added=tuple(map(block_key, added)),
            dropped=tuple(map(block_key, dropped)),
            snapshot=engine.snapshot() if with_snapshot else None,
        )


def computed_tokens(snapshot: Snapshot) -> int:
    """Return how many prompt tokens were computed since the engine began."""
    return snapshot.counts.prefix_queries - snapshot.counts.prefix_hits
