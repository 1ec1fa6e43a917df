"""A door's connection to one replica."""

import asyncio
import hmac
from dataclasses import dataclass, field
from secrets import token_bytes
from typing import Protocol

import msgspec

from draftwerk.actors.messages import Cancel, Submit
from draftwerk.actors.monitoring.snapshot import Snapshot
from draftwerk.cluster.frame_stream import FrameStream, LinkLostError
from draftwerk.cluster.protocol import (
    Challenge,
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
    proof_of,
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
                case Challenge() | Welcome():
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
    frames = FrameStream[FromReplica](reader, writer, DECODER)
    try:
        return ReplicaLink(frames, await _greeted(frames, secret, door_id), silence_s)
    except BaseException:
        await frames.close()
        raise


async def _greeted(frames: FrameStream[FromReplica], secret: bytes, door_id: str) -> ReplicaInfo:
    challenge = await frames.receive(GREETING_S)
    if not isinstance(challenge, Challenge):
        raise LinkLostError("no challenge came first")
    nonce = token_bytes(16)
    proof = proof_of(secret, "door", challenge.nonce)
    frames.send(Hello(door_id=door_id, proof=proof, nonce=nonce))
    welcome = await frames.receive(GREETING_S)
    if not isinstance(welcome, Welcome) or not hmac.compare_digest(
        welcome.proof, proof_of(secret, "replica", nonce)
    ):
        raise LinkLostError("the replica does not know the cluster's secret")
    return welcome.info
