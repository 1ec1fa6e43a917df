"""A door's connection to one replica."""

import asyncio
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from draftwerk.actors.messages import Cancel, Submit
from draftwerk.actors.monitoring.snapshot import Snapshot
from draftwerk_cluster.frame_stream import FrameStream, LinkLostError, close, greet_replica
from draftwerk_cluster.protocol import (
    Depart,
    EventBatch,
    FromReplica,
    Hello,
    Leaving,
    LoadReport,
    Placement,
    ReplicaInfo,
    ReplicaWork,
    TurnedAway,
    Welcome,
)

CONNECT_S = 3.0
GREETING_S = 10.0
"""A replica that is starting may be busy."""
DECODER = msgspec.msgpack.Decoder(FromReplica)


class LinkOwner(Protocol):
    """What is told of what a replica sends."""

    def on_events(self, link: "ReplicaLink", batch: EventBatch) -> None: ...

    def on_turned_away(self, link: "ReplicaLink", request_id: str) -> None: ...

    def on_report(self, link: "ReplicaLink", report: LoadReport) -> None: ...

    def on_leaving(self, link: "ReplicaLink") -> None: ...


@dataclass(slots=True, eq=False)
class ReplicaLink:
    """A greeted connection."""

    frames: FrameStream[FromReplica]
    info: ReplicaInfo
    silence_s: float
    """Without a report for so long the replica counts as lost."""
    work: ReplicaWork = field(default_factory=ReplicaWork)
    snapshot: Snapshot | None = None
    is_open: bool = True
    """Whether it takes requests."""

    def place(self, submit: Submit, missing_tokens: float) -> None:
        """Send a request there."""
        self.frames.send(Placement(submit=submit, missing_tokens=missing_tokens))

    def cancel(self, request_id: str) -> None:
        """End a request there; events of it may still come."""
        self.frames.send(Cancel(request_id=request_id))

    def depart(self) -> None:
        """Ask the replica to leave."""
        self.frames.send(Depart())

    async def run(self, owner: LinkOwner) -> None:
        """Read until the replica is lost; raises LinkLostError then."""
        try:
            await self._read(owner)
        finally:
            await self.frames.close()

    async def _read(self, owner: LinkOwner) -> None:
        while True:
            message = await self.frames.receive(self.silence_s)
            match message:
                case EventBatch():
                    owner.on_events(self, message)
                case LoadReport():
                    self.work = message.work
                    self.snapshot = message.snapshot or self.snapshot
                    owner.on_report(self, message)
                case TurnedAway():
                    owner.on_turned_away(self, message.request_id)
                case Leaving():
                    self.is_open = False
                    owner.on_leaving(self)
                case Welcome():
                    raise LinkLostError("a second greeting")


async def connect(
    host: str, port: int, secret: bytes, door_id: str, silence_s: float
) -> ReplicaLink:
    """Return a link to the replica that listens there. Raises LinkLostError."""
    try:
        async with asyncio.timeout(CONNECT_S):
            reader, writer = await asyncio.open_connection(host, port)
    except (OSError, TimeoutError) as error:
        raise LinkLostError(f"{host}:{port}: {error}") from None
    try:
        session = await greet_replica(reader, writer, secret, GREETING_S)
        frames = FrameStream[FromReplica](reader, writer, DECODER, session)
        frames.send(Hello(door_id=door_id))
        welcome = await frames.receive(GREETING_S)
        if not isinstance(welcome, Welcome):
            raise LinkLostError("it says something else than who it is")
        return ReplicaLink(frames, welcome.info, silence_s)
    except BaseException:
        await close(writer)
        raise
