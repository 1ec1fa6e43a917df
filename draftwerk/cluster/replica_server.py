"""An engine as a replica: doors connect to it, send requests, and read their events.

A connection that ends cancels what came over it. What a door does about that is its own affair: it
has each request's committed tokens, and another replica goes on from them.
"""

import asyncio
import hmac
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from secrets import token_bytes

from draftwerk.cluster.door_connection import DECODER, DoorConnection
from draftwerk.cluster.frame_stream import FrameStream, LinkLostError
from draftwerk.cluster.protocol import (
    Challenge,
    FromDoor,
    Hello,
    ReplicaInfo,
    Welcome,
    proof_of,
)
from draftwerk.cluster.replica_state import ReplicaState

HELLO_S = 5.0
"""For a connection to show that it is a door's."""


@dataclass(slots=True, eq=False)
class ReplicaServer:
    """Every connection of a replica."""

    state: ReplicaState
    info: ReplicaInfo
    secret: bytes
    _connections: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])

    @asynccontextmanager
    async def listening(self, host: str, port: int = 0) -> AsyncGenerator[int]:
        """Take connections for the length of the block; yields the port."""
        server = await asyncio.start_server(self._serve, host, port)
        watch = asyncio.create_task(self.state.watch_pace())
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            watch.cancel()
            server.close()
            for door in list(self.state.doors):
                door.abort()
            if self._connections:
                await asyncio.wait(self._connections)

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

    async def _greeted(self, frames: FrameStream[FromDoor]) -> DoorConnection | None:
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
        return DoorConnection(self.state, frames, hello.door_id)
