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

from draftwerk.actors.events.client_events import Event, Failed
from draftwerk.actors.mailbox import Inbox, Outbox, mailbox
from draftwerk.actors.monitoring.snapshot import Snapshot
from draftwerk.api.shared.ports import ServedModel
from draftwerk.speculative.request import Options
from draftwerk.speculative.requests.client_prompts import Prompt
from draftwerk_cluster.frame_stream import LinkLostError
from draftwerk_cluster.protocol import ReplicaInfo
from draftwerk_cluster.replica_link import ReplicaLink, connect
from draftwerk_cluster.replica_server import ReplicaServer
from draftwerk_cluster.replica_set import ReplicaSet
from draftwerk_cluster.replica_state import ReplicaState
from tests.api.support.fake_engine import ByteText, FakeEngine
from tests.support.waiting import DEADLINE_S

DOOR = os.environ.get("TEST_DOOR", "")
"""What is between the API and the fake engine: nothing, `replicas` or `serve`."""
REPLICAS = ("one", "two")
SECRET = b"of the tests"
EVENTS_MAX = 2**20
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
ENCODED = "the test looks at the prompt's messages, which the door has tokenized"
LOGGED = "the door's log is in another process"
NEEDS_DOOR_INSIDE = {
    "test_contents_may_be_parts_and_developers_are_systems": ENCODED,
    "test_the_stock_client_gets_a_response": ENCODED,
    "test_a_response_goes_on_from_another_token_for_token": ENCODED,
    "test_a_streamed_response_at_its_limit_is_gone_on_from_too": ENCODED,
    "test_a_participants_name_reaches_the_template": ENCODED,
    "test_truncation_drops_the_earliest_turns_and_keeps_system_messages": ENCODED,
    "test_a_prompt_is_one_turn_or_stands_as_it_is": ENCODED,
    "test_limits_and_stop_sequences_are_told": ENCODED,
    "test_headers_that_change_with_every_request_do_not_reach_the_prompt": ENCODED,
    "test_a_model_that_does_not_reason_is_asked_in_vain": ENCODED,
    "test_documents_stand_before_the_question_and_usage_tells_of_them": ENCODED,
    "test_documents_are_of_one_response_alone": ENCODED,
    "test_a_requests_lengths_and_times_add_up": "one door counts the requests of all tests",
    "test_a_refused_request_is_logged_and_counted_once": LOGGED,
    "test_what_reached_the_engine_is_counted_once": LOGGED,
    "test_a_client_cannot_write_lines_of_its_own_into_the_log": LOGGED,
    "test_a_cancelled_request_reports_its_prompt": LOGGED,
}
"""Tests that cannot run where Ray Serve's door is in a process of its own, and why not."""


def skip_where_replicas_differ(items: list[pytest.Item]) -> None:
    """Skip by name what only one process can do."""
    for item in items:
        name = getattr(item, "originalname", item.name)
        if DOOR and name in NEEDS_ONE_PROCESS:
            item.add_marker(pytest.mark.skip(reason=f"replicas: {NEEDS_ONE_PROCESS[name]}"))
        if DOOR == "serve" and name in NEEDS_DOOR_INSIDE:
            item.add_marker(pytest.mark.skip(reason=f"Serve: {NEEDS_DOOR_INSIDE[name]}"))


@dataclass(eq=False)
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
            server = ReplicaServer(
                ReplicaState(FakeReplica(fake)), replica_info(name, fake, model), SECRET
            )
            port = await stack.enter_async_context(server.listening("127.0.0.1"))
            link = await connect("127.0.0.1", port, SECRET, "door", DEADLINE_S)
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
