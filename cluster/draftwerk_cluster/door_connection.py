"""One front's connection to a replica: its requests in, events and reports out."""

import asyncio
from dataclasses import dataclass, field

import anyio
import msgspec

from draftwerk.actors.events.client_events import Delta, Ended, Event, Failed
from draftwerk.actors.mailbox import Inbox, receive_all
from draftwerk.actors.messages import Cancel
from draftwerk.actors.requests.checked_options import OptionsError
from draftwerk.actors.requests.errors import DrainingError, OverloadedError
from draftwerk_cluster.frame_stream import FrameStream, LinkLostError
from draftwerk_cluster.protocol import (
    Depart,
    EventBatch,
    FromDoor,
    Hello,
    Leaving,
    LoadReport,
    Placement,
    TurnedAway,
    block_key,
)
from draftwerk_cluster.replica_state import LiveRequest, ReplicaState

NEVER_S = 1e9
REPORT_S = 0.2
"""Between two reports of the load."""
SNAPSHOT_EVERY = 5
"""Reports from one snapshot to the next."""
LOADS_MAX = 4
"""Reports of the load alone, from one with the blocks to the next: one for each door, as each is
blind to what the others send until it is told."""
BROKEN_OFF = "the stream ended before its last event"
DECODER = msgspec.msgpack.Decoder(FromDoor)


@dataclass(slots=True, eq=False)
class DoorConnection:
    """One door's requests."""

    replica: ReplicaState
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
        self.replica.doors.add(self.frames)
        if self.replica.is_leaving:
            self.frames.send(Leaving())
        reports = asyncio.create_task(self._report())
        try:
            while True:
                self._take(await self.frames.receive(NEVER_S))
        finally:
            self.replica.doors.discard(self.frames)
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
                self.replica.on_depart.set()
            case Hello():
                raise LinkLostError("a second greeting")

    async def _generate(self, placement: Placement) -> None:
        """Run one request, and pass its events on."""
        replica, submit = self.replica, placement.submit
        options = submit.options
        if replica.is_leaving:
            self.frames.send(TurnedAway(request_id=submit.request_id))
            return
        choices = options.choices - len(submit.ended)
        request = LiveRequest(
            placement.missing_tokens,
            max(options.beam_width, choices),
            choices,
            asyncio.get_running_loop().time(),
        )
        replica.live.add(request)
        try:
            async with replica.engine.generate(
                submit.prompt,
                options,
                request_id=f"{self.door_id}/{submit.request_id}",
                committed=submit.committed,
                ended=submit.ended,
            ) as stream:
                await self._pass_on(submit.request_id, stream, request)
        except (OverloadedError, DrainingError):
            self.frames.send(TurnedAway(request_id=submit.request_id))
        except OptionsError as error:
            refusal = Failed(
                request_id=submit.request_id, kind="refused", reason=str(error), field=error.field
            )
            self._send(submit.request_id, (refusal,))
        finally:
            replica.ended(request)

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
                self.replica.engine.snapshot().draining
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
            loads = min(max(len(self.replica.doors), 1), LOADS_MAX)
            for _ in range(loads - 1):
                await asyncio.sleep(REPORT_S / loads)
                self.frames.send(LoadReport(received=self.received, work=self.replica.work()))
            await asyncio.sleep(REPORT_S / loads)

    def _next_report(self, with_snapshot: bool) -> LoadReport:
        engine = self.replica.engine
        names = frozenset(engine.cached_names())
        added, dropped = names - self.reported, self.reported - names
        self.reported = names
        return LoadReport(
            received=self.received,
            work=self.replica.work(),
            added=tuple(map(block_key, added)),
            dropped=tuple(map(block_key, dropped)),
            snapshot=engine.snapshot() if with_snapshot else None,
        )
