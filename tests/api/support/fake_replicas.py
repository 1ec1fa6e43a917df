"""The fake engine as two replicas: real connections, routers, and the door's ledger before them.

`TEST_DOOR=replicas python -m pytest tests/api` runs the door's tests so, in one process, and
`TEST_DOOR=serve` runs them through a Ray Serve that has the door (`tests.api.support.ray_door`).
"""

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, KeysView
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field

import pytest

from draftwerk.actors.mailbox import Inbox, Outbox, mailbox
from draftwerk.actors.messages import Event, Failed, Options, Prompt
from draftwerk.actors.monitoring.snapshot import Snapshot
from draftwerk.api.core.ports import ServedModel
from draftwerk.cluster.frame_stream import LinkLostError
from draftwerk.cluster.protocol import ReplicaInfo
from draftwerk.cluster.replica_link import ReplicaLink, connect
from draftwerk.cluster.replica_server import ReplicaServer
from draftwerk.cluster.replica_set import ReplicaSet
from tests.api.support.fake_engine import ByteText, FakeEngine

DOOR = os.environ.get("TEST_DOOR", "")
"""What is between the API and the fake engine: nothing, `replicas` or `serve`."""
REPLICAS = ("one", "two")
SECRET = b"of the tests"
EVENTS_MAX = 2**20
SILENCE_S = 5.0
STATE = "a replica's state is reported once in a second"
NEEDS_ONE_PROCESS = {
    "test_the_stock_client_waits_out_an_overload": (
        "what a full replica turns away waits at the door, whose own admission answers 503"
    ),
    "test_ready_is_503_while_draining_full_or_stuck": STATE,
    "test_ready_names_the_stuck_actor_and_the_missing_model": STATE,
    "test_metrics_carry_the_names_of_dashboards": "the replicas' counters are added",
}
"""Tests that make no sense with replicas, and why not."""


def skip_where_replicas_differ(items: list[pytest.Item]) -> None:
    """Skip by name what only one process can do."""
    for item in items:
        reason = NEEDS_ONE_PROCESS.get(getattr(item, "originalname", item.name))
        if DOOR and reason:
            item.add_marker(pytest.mark.skip(reason=f"replicas: {reason}"))


@dataclass(slots=True, eq=False)
class FakeReplica:
    """The fake engine, as a replica's server wants one; several may share it."""

    fake: FakeEngine

    @asynccontextmanager
    async def generate(
        self,
        prompt: Prompt,
        options: Options,
        *,
        request_id: str,
        committed: tuple[tuple[int, ...], ...] = (),
        ended: tuple[int, ...] = (),
    ) -> AsyncGenerator[Inbox[Event]]:
        assert not any(committed) and not ended, "no replica is lost here"
        events, stream = mailbox[Event](EVENTS_MAX)
        async with self.fake.generating(prompt, options, request_id) as source:
            pump = asyncio.create_task(pumped(source, events, request_id))
            try:
                with stream:
                    yield stream
            finally:
                pump.cancel()
                await asyncio.wait((pump,))

    def snapshot(self) -> Snapshot:
        return self.fake.snapshot()

    def cached_names(self) -> KeysView[bytes]:
        return dict[bytes, None]().keys()


async def pumped(source: AsyncIterator[Event], events: Outbox[Event], request_id: str) -> None:
    """Pass events on; where they break off, the last one says so, as the real engine's does."""
    reason = "the stream ended before its last event"
    try:
        async for event in source:
            events.send_nowait(event)
    except RuntimeError:
        reason = "the engine has ended"
        events.send_nowait(Failed(request_id=request_id, kind="failed", reason=reason))
    finally:
        events.close()


@dataclass(slots=True)
class FakeReplicaSet(ReplicaSet):
    """The door's engine; notes what the API submits, before it is tokenized."""

    fake: FakeEngine = field(kw_only=True)

    @asynccontextmanager
    async def generate(
        self, prompt: Prompt, options: Options, *, request_id: str
    ) -> AsyncGenerator[Inbox[Event]]:
        async with ReplicaSet.generate(self, prompt, options, request_id=request_id) as stream:
            self.fake.submitted.append((prompt, options))
            yield stream

    def trace(self) -> list[dict[str, object]]:
        return [*ReplicaSet.trace(self), *self.fake.trace()]


def replica_info(name: str, fake: FakeEngine, model: ServedModel) -> ReplicaInfo:
    """Return what a door is told of a fake replica."""
    return ReplicaInfo(
        replica_id=name,
        version="1",
        fingerprint="of the fake",
        model=model,
        tokens_max=fake.context_max,
        requests_max=fake.requests_max,
        block_size=16,
        name_secret=b"names",
    )


@asynccontextmanager
async def behind_replicas(fake: FakeEngine, model: ServedModel) -> AsyncGenerator[FakeReplicaSet]:
    """Put a fake engine behind two replicas; everything must have come home at the end."""
    door = FakeReplicaSet(ByteText(), fake.context_max, fake=fake)
    async with AsyncExitStack() as stack:
        tasks: list[asyncio.Task[None]] = []
        for name in REPLICAS:
            server = ReplicaServer(FakeReplica(fake), replica_info(name, fake, model), SECRET)
            port = await stack.enter_async_context(server.listening("127.0.0.1"))
            link = await connect("127.0.0.1", port, SECRET, "door", SILENCE_S)
            door.join(link)
            tasks.append(asyncio.create_task(followed(door, link)))
        await asyncio.sleep(0)
        try:
            yield door
            door.check()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def followed(door: ReplicaSet, link: ReplicaLink) -> None:
    with suppress(LinkLostError):
        await link.run(door)
