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

from draftwerk.actors.client_prompts import Prompt
from draftwerk.actors.mailbox import Inbox
from draftwerk.actors.messages import Event
from draftwerk.actors.monitoring.snapshot import Snapshot
from draftwerk.cluster.door_connection import DECODER, DoorConnection, LiveRequest, computed_tokens
from draftwerk.cluster.frame_stream import FrameStream, LinkLostError
from draftwerk.cluster.protocol import (
    Challenge,
    FromDoor,
    Hello,
    Leaving,
    ReplicaInfo,
    ReplicaWork,
    Welcome,
    proof_of,
)
from draftwerk.speculative.requests.request import Options

HELLO_S = 5.0
"""For a connection to show that it is a door's."""
PACE_S = 1.0
PACE_SHARE = 0.3
"""Of the latest second in the pace of prefill."""


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
