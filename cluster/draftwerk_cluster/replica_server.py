"""An engine as a replica: doors connect to it, send requests, and read their events.

A connection that ends cancels what came over it. What a door does about that is its own affair: it
has each request's committed tokens, and another replica goes on from them.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from draftwerk.cache.store.peer_session import PeerIdentity
from draftwerk_cluster.door_connection import DECODER, DoorConnection
from draftwerk_cluster.frame_stream import (
    FrameStream,
    LinkLostError,
    close,
    greet_door,
    link_identity,
)
from draftwerk_cluster.protocol import FromDoor, Hello, ReplicaInfo, Welcome
from draftwerk_cluster.replica_state import ReplicaState

HELLO_S = 5.0
"""For a connection to show that it is a door's."""
STRANGERS_MAX = 64
"""Connections at once that have not yet: of more, the oldest ends."""


@dataclass(slots=True, eq=False)
class ReplicaServer:
    """Every connection of a replica."""

    state: ReplicaState
    info: ReplicaInfo
    secret: bytes
    _identity: PeerIdentity = field(init=False)
    _connections: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])
    _strangers: dict[asyncio.StreamWriter, None] = field(
        default_factory=dict[asyncio.StreamWriter, None]
    )

    def __post_init__(self) -> None:
        self._identity = link_identity(self.secret)

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
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            door = await self._greeted(reader, writer)
            await door.run()
        except LinkLostError:
            writer.transport.abort()
        finally:
            self._connections.discard(task)
            await close(writer)

    async def _greeted(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> DoorConnection:
        """Return the connection of a door, or of a command. Raises LinkLostError for another."""
        self._strangers[writer] = None
        if len(self._strangers) > STRANGERS_MAX:
            next(iter(self._strangers)).transport.abort()
        try:
            session = await greet_door(reader, writer, self._identity, HELLO_S)
        finally:
            del self._strangers[writer]
        frames = FrameStream[FromDoor](reader, writer, DECODER, session)
        hello = await frames.receive(HELLO_S)
        if not isinstance(hello, Hello):
            raise LinkLostError("it says something else than who it is")
        frames.send(Welcome(info=self.info))
        return DoorConnection(self.state, frames, hello.door_id)
