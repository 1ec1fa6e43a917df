"""`draftwerk serve --replicas 2` on a Ray of its own: the API through Serve, a killed replica."""

import argparse
import asyncio
import inspect
import logging
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import openai
import pytest
import pytest_asyncio

from benchmarks.cluster.replica_kills import ClusterClient, differences, served
from benchmarks.support.streams import Stream
from draftwerk.actors.monitoring.snapshot import ActorFigures, Snapshot
from draftwerk.api.shared.ports import ServedModel
from draftwerk_cluster.cluster_settings import cluster_settings
from draftwerk_cluster.protocol import ReplicaInfo
from draftwerk_cluster.replica_server import ReplicaServer
from draftwerk_cluster.replica_set import ReplicaSet
from draftwerk_cluster.replica_state import ReplicaState
from tests.cluster.small_cluster import CONTEXT, SECRET, Replica
from tests.support.tiny_models import save_tiny_with_text
from tests.support.toy import ToyText

pytest.importorskip("ray", reason="Ray is not installed: pip install ./cluster")
pytestmark = pytest.mark.asyncio(loop_scope="module")

STREAMS = 14
REPLICA = ReplicaInfo(
    replica_id="a",
    version="1",
    fingerprint="f",
    model=ServedModel(name="m", context_max=8),
    tokens_max=8,
    requests_max=8,
    block_size=16,
    name_secret=b"",
)
SERVE = ("--dtype", "fp32", "--kv-memory", "32MiB", "--spare", "off", "--kv-peers", "replicas")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[ClusterClient]:
    directory: Path = tmp_path_factory.mktemp("tiny")
    save_tiny_with_text(directory, seed=3)
    options = argparse.Namespace(replicas=2, tokens=60, serve=[str(directory), *SERVE])
    async with served(options) as found:
        yield found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plain(client: ClusterClient) -> list[Stream]:
    return await client.answers(STREAMS)


async def test_every_kind_of_request_is_served(plain: list[Stream]) -> None:
    assert all(any(each.texts.values()) for each in plain), [each.ending for each in plain]


async def test_errors_and_capabilities_are_those_of_one_process(client: ClusterClient) -> None:
    async with client.http.post(client.url + "/v1/completions", json={"prompt": 3.5}) as reply:
        assert reply.status == 400
        assert (await reply.json())["error"]["param"] == "prompt"
    async with client.http.get(client.url + "/v1/capabilities") as reply:
        assert (await reply.json())["exact"] is True
    async with client.http.get(client.url + "/nowhere") as reply:
        assert reply.status == 404


async def test_the_stock_client_streams_over_sse_and_websocket(client: ClusterClient) -> None:
    async with openai.AsyncOpenAI(base_url=client.url + "/v1", api_key="none") as stock:
        model = (await stock.models.list()).data[0].id
        stream = await stock.chat.completions.create(
            model=model, messages=[{"role": "user", "content": "Hello"}], max_tokens=30, stream=True
        )
        assert len([chunk async for chunk in stream]) > 3
        async with stock.responses.connect() as connection:
            await connection.response.create(model=model, input="Hello", max_output_tokens=30)
            kinds: list[str] = []
            async for event in connection:
                kinds.append(event.type)
                if event.type in ("response.completed", "response.incomplete", "error"):
                    break
    assert kinds.count("response.output_text.delta") > 2 and kinds[-1] != "error"


async def test_the_door_is_that_of_one_process(client: ClusterClient) -> None:
    async with client.http.get(client.url + "/ready") as reply:
        assert len(reply.headers.getall("x-request-id")) == 1
        assert set((await reply.json())["replicas"].values()) == {"ready"}
    async with client.http.get(client.url + "/") as reply:
        assert reply.status == 200 and "draftwerk" in await reply.text()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Ray's own
@pytest.mark.parametrize(
    ("snapshot", "fault"),
    [(Snapshot(actors=ActorFigures(progress_age_s=99.0)), "99 s"), (Snapshot(), "")],
)
async def test_a_stuck_engine_fails_serves_health_check(snapshot: Snapshot, fault: str) -> None:
    from draftwerk_cluster.ray_serve.deployments import EngineReplica

    loop = asyncio.get_running_loop()
    engine, server = FixedSnapshot(snapshot), loop.create_future()
    server.set_result(ReplicaServer(ReplicaState(engine), REPLICA, b""))  # type: ignore[arg-type]
    replica: Any = SimpleNamespace(
        settings=cluster_settings({"stuck_s": 60.0}),
        stop=asyncio.Event(),
        fault="",
        host=loop.create_future(),
        server=server,
    )
    if not fault:
        await EngineReplica.check_health(replica)
        assert not replica.stop.is_set()
        return
    for each in (snapshot, Snapshot()):  # nothing is left of its work once it has left
        engine.found = each
        with pytest.raises(RuntimeError, match=fault):
            await EngineReplica.check_health(replica)
        assert replica.stop.is_set()


@dataclass
class FixedSnapshot:
    """An engine of which only the state is known."""

    found: Snapshot

    def snapshot(self) -> Snapshot:
        return self.found


async def test_both_replicas_work_and_are_counted_apart(
    client: ClusterClient, plain: list[Stream]
) -> None:
    assert plain
    page = await client.metrics()
    each = page.by_label("draftwerk_replica_generation_tokens_total", "replica").values()
    assert len(each) == 2 and all(each)
    assert page.total("vllm:generation_tokens_total") == sum(each)


async def test_a_killed_replica_changes_no_text(client: ClusterClient, plain: list[Stream]) -> None:
    before = await client.processes()
    kill = asyncio.create_task(client.kill(0.1))
    found = await client.answers(STREAMS)
    await kill
    assert differences(plain, enumerate(found)) == []
    assert len(before) == 2


async def test_replicas_fetch_blocks_from_each_other(
    client: ClusterClient, plain: list[Stream]
) -> None:
    async with asyncio.timeout(120):
        while len(await client.processes()) < 2:  # noqa: ASYNC110 - the killed one is back
            await asyncio.sleep(0.5)
        hits = 0.0
        while not hits:  # as they are not told that the other has them at once
            assert differences(plain, enumerate(await client.answers(STREAMS))) == []
            hits = (await client.metrics()).total("draftwerk_kv_store_hits_total")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Ray's own
@pytest.mark.parametrize(("leaves", "line"), [(True, "a has left"), (False, "a is lost")])
async def test_a_replica_that_leaves_is_not_called_lost(
    caplog: pytest.LogCaptureFixture, leaves: bool, line: str
) -> None:
    from draftwerk_cluster.ray_serve.directory import Address
    from draftwerk_cluster.ray_serve.links import LinkKeeper

    replica, door = Replica("a"), ReplicaSet(ToyText(), CONTEXT)
    await replica.start()
    entered: Any = SimpleNamespace(replicas=lambda: [Address("a", "127.0.0.1", replica.port)])
    keeper = asyncio.create_task(LinkKeeper(door, entered, SECRET, "door", 5.0).run())
    with caplog.at_level(logging.INFO, "draftwerk"):
        async with asyncio.timeout(30):
            await door.joined.wait()
            if leaves:
                await replica.server.state.leave(limit_s=5)
            await replica.stack.aclose()
            while door.links:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    keeper.cancel()
    await asyncio.gather(keeper, return_exceptions=True)
    assert [line in each.getMessage() for each in caplog.records] == [True]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Ray's own
async def test_serve_asks_for_waits_on_the_loop_that_counts_them() -> None:
    from draftwerk_cluster.ray_serve.deployments import EngineReplica

    # A plain function is called on a thread, where there is no loop: then no wait is reported.
    assert inspect.iscoroutinefunction(EngineReplica.record_autoscaling_stats)
    server = asyncio.get_running_loop().create_future()
    server.set_result(ReplicaServer(ReplicaState(FixedSnapshot(Snapshot())), REPLICA, b""))  # type: ignore[arg-type]
    replica: Any = SimpleNamespace(server=server)
    assert await EngineReplica.record_autoscaling_stats(replica) == {"wait_s": 0.0}
