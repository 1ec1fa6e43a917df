"""Replicas as one engine: whatever happens to them, each client gets the plain text, once."""

import asyncio
import random
from collections import defaultdict
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from msgspec.structs import replace

from draftwerk.actors.events.client_events import Delta, Event, Failed
from draftwerk.actors.mailbox import Inbox, mailbox
from draftwerk.actors.requests.errors import DrainingError, OverloadedError
from draftwerk.api.shared.ports import ServedModel
from draftwerk.speculative.request import Options
from draftwerk.speculative.requests.client_prompts import Passages
from draftwerk.speculative.requests.declared_segments import Blend
from draftwerk.speculative.sampling import Sampling
from draftwerk_cluster import door_connection
from draftwerk_cluster.door_connection import SNAPSHOT_EVERY
from draftwerk_cluster.frame_stream import LinkLostError
from draftwerk_cluster.numeric_fingerprint import numeric_fingerprint
from draftwerk_cluster.protocol import LoadReport
from draftwerk_cluster.replica_link import ReplicaLink, connect
from draftwerk_cluster.replica_set import ReplicaSet
from tests.cluster.small_cluster import CONTEXT, Replica, SmallCluster, small_cluster
from tests.support.simulation import Outcome, compare, kinds, random_options, read
from tests.support.toy import ToyText
from tests.support.waiting import DEADLINE_S, until


@dataclass(slots=True, eq=False)
class ReportedDoor(ReplicaSet):
    """A door that keeps the reports it gets, by replica."""

    reports: dict[str, list[LoadReport]] = field(
        default_factory=lambda: defaultdict[str, list[LoadReport]](list)
    )

    def on_report(self, link: ReplicaLink, report: LoadReport) -> None:
        self.reports[link.info.replica_id].append(report)
        ReplicaSet.on_report(self, link, report)

    async def reported(self) -> None:
        """Wait until each replica has told how it is now: one report may be under way."""
        for name in self.links:
            count = len(self.reports[name]) + 2
            await until(lambda at=self.reports[name], count=count: len(at) >= count)


LONG = Options(sampling=Sampling(seed=3), tokens_max=40, ignore_eos=True)


async def client(door: ReplicaSet, rng: random.Random, number: int, outcome: Outcome) -> None:
    """Be one client, which may leave early; every text must be the plain one."""
    options = random_options(rng)
    shared = [1 + n % 5 for n in range(rng.choice([0, 9, 17]))]
    prompt = [*shared, *(rng.randrange(1, 20) for _ in range(rng.randint(1, 9)))]
    outcome.kinds = kinds(options)
    outcome.texts, outcome.reasons = [""] * options.choices, [""] * options.choices
    await asyncio.sleep(rng.uniform(0, 0.2))
    sent = rng.choice([tuple(prompt), " ".join(f"w{token}" for token in prompt)])
    patience = rng.choice([0.01, 0.05, 30.0, 30.0, 30.0])
    try:
        async with asyncio.timeout(patience):
            await read(door, sent, options, str(number), 0.0, outcome)  # type: ignore[arg-type]
    except TimeoutError:
        assert patience < 30, "a patient client waited for nothing"
        outcome.ending = "left"
    compare(prompt, options, outcome)


async def crowd(cluster: SmallCluster, count: int, seed: int) -> list[Outcome]:
    outcomes = [Outcome() for _ in range(count)]
    async with asyncio.TaskGroup() as clients:
        for number, outcome in enumerate(outcomes):
            mind = random.Random(1000 * seed + number)
            clients.create_task(client(cluster.door, mind, number, outcome))
    return outcomes


async def test_new_requests_go_to_the_open_replicas_of_the_largest_pool() -> None:
    async with small_cluster(Replica("a"), Replica("b"), Replica("c", "other bits")) as cluster:
        door = cluster.door
        assert set(door.snapshot().cluster.open_replicas) == {"a", "b"}
        cluster.replicas["a"].kill()
        await until(lambda: "a" not in door.links)
        await cluster.add(Replica("d"))
        door.on_leaving(door.links["b"])
        await cluster.add(Replica("e"))
        assert set(door.snapshot().cluster.open_replicas) == {"d", "e"}
        assert door.snapshot().models.target_up


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_no_stream_is_lost_with_a_replica(seed: int) -> None:
    rng = random.Random(seed)
    async with small_cluster(*(Replica(name) for name in "abc")) as cluster:
        clients = asyncio.create_task(crowd(cluster, 40, seed))
        for name in "ab":
            await asyncio.sleep(rng.uniform(0.03, 0.08))
            await until(lambda at=cluster.replicas[name]: at.server.state.live)
            cluster.replicas[name].kill()
        await asyncio.sleep(0.03)
        await cluster.add(Replica("d"))
        outcomes = await clients
        assert cluster.door.moves["lost"] > 0
    assert {each.ending for each in outcomes} <= {"finished", "left", "refused"}
    assert sum(each.ending == "finished" for each in outcomes) > 20


async def test_streams_wait_for_a_replica_where_there_is_none() -> None:
    async with small_cluster(Replica("a")) as cluster:
        streams = [asyncio.create_task(texts(cluster.door, str(n))) for n in range(8)]
        cluster.replicas["a"].may_step.clear()
        await until(lambda: len(cluster.replicas["a"].server.state.live) == 8)
        cluster.replicas["a"].kill()
        await until(lambda: not cluster.door.links)
        assert not cluster.door.snapshot().models.target_up
        assert len(cluster.door.requests) == 8
        cluster.replicas["a"].may_step.set()
        await cluster.add(Replica("b"))
        found = await asyncio.gather(*streams)
        assert cluster.door.moves["lost"] == 8
        assert found == [await texts(cluster.door, "again")] * 8


async def test_a_replica_that_leaves_hands_its_streams_over() -> None:
    async with small_cluster(Replica("a"), Replica("b")) as cluster:
        clients = asyncio.create_task(crowd(cluster, 30, 7))
        leaving = cluster.replicas["a"]
        leaving.may_step.clear()  # none of its streams can end
        await until(lambda: leaving.server.state.live)
        await leaving.server.state.leave(DEADLINE_S)
        assert not leaving.server.state.live
        leaving.may_step.set()
        await clients
        assert cluster.door.moves["leaving"] > 0


async def test_the_last_replica_that_leaves_keeps_its_streams_to_their_ends() -> None:
    async with small_cluster(Replica("a")) as cluster:
        streams = [asyncio.create_task(texts(cluster.door, str(n))) for n in range(5)]
        last = cluster.replicas["a"].server.state
        await until(lambda: len(last.live) == 5)
        await last.leave(DEADLINE_S)
        found = await asyncio.gather(*streams)
        assert found[0] and len(set(found)) == 1
        assert not cluster.door.moves


async def test_streams_that_stayed_with_the_last_replica_go_to_the_next() -> None:
    async with small_cluster(Replica("a")) as cluster:
        text = asyncio.create_task(texts(cluster.door, "r"))
        last = cluster.replicas["a"]
        last.may_step.clear()
        await until(lambda: last.server.state.live)
        leaving = asyncio.create_task(last.server.state.leave(DEADLINE_S))
        await until(lambda: not cluster.door.links["a"].is_open)
        assert last.server.state.live
        await cluster.add(Replica("b"))
        await leaving
        last.may_step.set()
        assert cluster.door.moves["leaving"] == 1
        assert await text == await texts(cluster.door, "again")


async def test_a_request_without_a_token_may_go_to_another_pool() -> None:
    async with small_cluster(Replica("a")) as cluster:
        door = cluster.door
        async with door.generate((1, 2, 3), LONG, request_id="r") as stream:
            door.lose(door.links["a"])  # before it answers
            await cluster.add(Replica("other", fingerprint="other bits"))
            events = [event async for event in stream]
        assert not any(isinstance(event, Failed) for event in events) and len(events) > 2


async def test_a_replica_of_other_bits_takes_no_stream_over() -> None:
    async with small_cluster(Replica("a"), Replica("other", fingerprint="other bits")) as cluster:
        door = cluster.door
        names = {each.fingerprint: each.replica_id for each in door.infos}
        primary = names[door.pools.primary().partition("/")[2]]
        async with door.generate((1, 2, 3), LONG, request_id="r") as stream:
            async for event in stream:
                if isinstance(event, Delta):
                    break
            cluster.replicas[primary].kill()
            await until(lambda: primary not in door.links)
            assert door.requests["r"].link is None, "it waits for its own pool"
            await cluster.add(Replica("back", cluster.replicas[primary].fingerprint))
            rest = [event async for event in stream]
            assert rest and not any(isinstance(event, Failed) for event in rest)
            assert cluster.replicas["back"].engine.snapshot().counts.rounds > 0


async def test_engines_of_equal_logits_and_limits_have_one_numeric_fingerprint() -> None:
    model, found = (
        ServedModel(name="toy", context_max=CONTEXT, vocab_size=ToyText().vocab_size),
        list[str](),
    )
    async with small_cluster(Replica("a"), Replica("b")) as cluster:
        engines = [each.engine for each in cluster.replicas.values()]
        for engine, limit in ((engines[0], 1), (engines[1], 1), (engines[1], 2)):
            found.append(await numeric_fingerprint(engine, model, (limit,)))
    assert found[0] == found[1] != found[2]


async def test_a_request_that_ends_replica_after_replica_fails() -> None:
    async with small_cluster(Replica("r0")) as cluster:
        number = 0
        async with cluster.door.generate((1, 2, 3), LONG, request_id="poison") as stream:
            for number in range(1, 20):
                # It dies before it answers.
                cluster.door.lose(cluster.door.links[f"r{number - 1}"])
                if cluster.door.requests["poison"].entry.over:
                    break
                await cluster.add(Replica(f"r{number}"))
            events = [event async for event in stream]
        assert isinstance(events[-1], Failed) and events[-1].kind == "failed"
        assert 3 < number < 12


async def test_a_full_replica_turns_away_and_another_takes_it() -> None:
    async with small_cluster(Replica("a", requests_max=1), Replica("b")) as cluster:
        streams = [asyncio.create_task(texts(cluster.door, str(n))) for n in range(6)]
        found = await asyncio.gather(*streams)
        assert len(set(found)) == 1


async def texts(door: ReplicaSet, request_id: str) -> str:
    async with door.generate((1, 2, 3), LONG, request_id=request_id) as stream:
        return "".join([event.text async for event in stream if isinstance(event, Delta)])


async def test_a_refusal_names_the_clients_field() -> None:
    async with small_cluster(Replica("a")) as cluster:
        door = cluster.door
        async with door.generate("w1 " * 80, LONG, request_id="long") as stream:
            events = [event async for event in stream]
        assert [(each.kind, each.field) for each in events if isinstance(each, Failed)] == [
            ("refused", "prompt")
        ]


async def test_segments_are_found_at_the_door() -> None:
    blend = Blend((), "none", 0.0)
    options = replace(LONG, blend=blend)
    async with small_cluster(Replica("a")) as cluster:
        prompt = Passages(("w1 w2 w3", "w4 w5"), "w6 w7")
        async with cluster.door.generate(prompt, options, request_id="passages") as stream:
            sent = cluster.door.requests["passages"].entry.submit
            events = [event async for event in stream]
        assert sent.prompt == (1, 2, 3, 4, 5, 6, 7)
        assert sent.options.blend == replace(blend, spans=((0, 3), (3, 5)))
        assert not any(isinstance(event, Failed) for event in events)


async def test_prefixes_meet_at_their_replica(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door_connection, "REPORT_S", 0.02)
    door = ReportedDoor(ToyText(), CONTEXT)
    async with small_cluster(Replica("a"), Replica("b"), Replica("c"), door=door) as cluster:
        options = Options(sampling=Sampling(seed=1), tokens_max=2)
        for number in range(12):
            prompt = tuple(1 + (number % 4 + n) % 7 for n in range(24))
            async with door.generate(prompt, options, request_id=str(number)) as stream:
                async for _ in stream:
                    pass
            await door.reported()
        snapshot = door.snapshot()
        hits = sum(each.engine.snapshot().counts.prefix_hits for each in cluster.replicas.values())
        assert hits == 8 * 20, "each prefix is computed once; of 24 tokens 5 blocks can be shared"
        assert set(snapshot.cluster.replicas) == {"a", "b", "c"}
        assert snapshot.counts.prompt_tokens == sum(
            each.counts.prompt_tokens for each in snapshot.cluster.replicas.values()
        )


async def test_a_door_that_goes_leaves_nothing_behind() -> None:
    async with small_cluster(Replica("a")) as cluster:
        other = ReplicaSet(cluster.door.text, cluster.door.tokens_max)
        link = await cluster.connect(other, cluster.replicas["a"], "other")
        async with other.generate((1, 2, 3), LONG, request_id="r") as stream:
            await stream.receive()
            link.frames.abort()
            async with asyncio.timeout(DEADLINE_S):
                await cluster.replicas["a"].engine.idle()


async def test_the_secret_is_needed() -> None:
    async with small_cluster(Replica("a")) as cluster:
        with pytest.raises(LinkLostError):
            await connect("127.0.0.1", cluster.replicas["a"].port, b"guess", "door", 5)


async def test_a_draining_door_takes_nothing_and_ends_with_its_last_request() -> None:
    async with small_cluster(Replica("a")) as cluster:
        door = cluster.door
        text = asyncio.create_task(texts(door, "r"))
        await until(lambda: door.requests)
        await door.drain()
        assert await text
        with pytest.raises(DrainingError):
            await texts(door, "late")


async def test_a_door_without_replicas_is_overloaded() -> None:
    async with small_cluster() as cluster:
        with pytest.raises(OverloadedError):
            await texts(cluster.door, "r")


async def test_a_stream_that_breaks_off_at_a_replica_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with small_cluster(Replica("a")) as cluster:
        engine = cluster.replicas["a"].engine
        real = engine.generate

        @asynccontextmanager
        async def broken_off(*prompt: Any, **named: Any) -> AsyncGenerator[Inbox[Event]]:
            async with real(*prompt, **named):
                events, stream = mailbox[Event](1)
                events.close()
                with stream:
                    yield stream

        monkeypatch.setattr(type(engine), "generate", lambda _, *a, **b: broken_off(*a, **b))
        async with (
            asyncio.timeout(DEADLINE_S),
            cluster.door.generate((1, 2), LONG, request_id="x") as got,
        ):
            event = await got.receive()
        assert isinstance(event, Failed)
        assert event.reason == "the stream ended before its last event"


@pytest.mark.parametrize("doors", [1, 3])
async def test_several_doors_are_told_of_the_load_more_often(
    doors: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door_connection, "REPORT_S", 0.02)
    async with small_cluster(Replica("a")) as cluster:
        told = [ReportedDoor(ToyText(), CONTEXT) for _ in range(doors)]
        cluster.replicas["a"].kill()  # the cluster's own door is no part of this
        for number, door in enumerate(told):
            await cluster.connect(door, cluster.replicas["a"], f"door {number}")
        for door in told:
            await until(lambda at=door: len(snapshots(at)) > 3)
            _, _, begun, ended, *_ = snapshots(door)  # all doors are there by then
            assert ended - begun == doors * SNAPSHOT_EVERY


def snapshots(door: ReportedDoor) -> list[int]:
    """Return which of the reports have a snapshot: each SNAPSHOT_EVERY-th of those with blocks."""
    return [n for n, report in enumerate(door.reports["a"]) if report.snapshot is not None]
