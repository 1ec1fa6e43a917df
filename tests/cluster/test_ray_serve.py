"""`draftwerk serve --replicas 2` on a Ray of its own: the API through Serve, a killed replica."""

import argparse
import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import pytest_asyncio

from benchmarks.cluster.replica_kills import (
    ServedText,
    TextClient,
    all_answers,
    differences,
    killed,
    metrics,
    replica_processes,
    served,
)
from tests.support.tiny_models import save_tiny_with_text

pytest.importorskip("ray", reason="Ray is not installed: it comes with the extra `cluster`")
pytestmark = pytest.mark.asyncio(loop_scope="module")

STREAMS = 14
SERVE = ("--dtype", "fp32", "--kv-memory", "32MiB", "--spare", "off")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[TextClient]:
    directory: Path = tmp_path_factory.mktemp("tiny")
    save_tiny_with_text(directory, seed=3)
    options = argparse.Namespace(port=18431, replicas=2, tokens=60, serve=[str(directory), *SERVE])
    async with served(options) as found:
        yield found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plain(client: TextClient) -> list[ServedText]:
    return await all_answers(client, STREAMS)


async def test_every_kind_of_request_is_served(plain: list[ServedText]) -> None:
    assert [each.error for each in plain] == [""] * STREAMS
    assert all(any(each.texts.values()) for each in plain)


async def test_errors_and_capabilities_are_those_of_one_process(client: TextClient) -> None:
    async with client.session.post(client.url + "/v1/completions", json={"prompt": 3.5}) as reply:
        assert reply.status == 400
        assert (await reply.json())["error"]["param"] == "prompt"
    async with client.session.get(client.url + "/v1/capabilities") as reply:
        assert (await reply.json())["exact"] is True
    async with client.session.get(client.url + "/nowhere") as reply:
        assert reply.status == 404


async def test_both_replicas_work_and_are_counted_apart(
    client: TextClient, plain: list[ServedText]
) -> None:
    assert plain
    page = await metrics(client)
    each = [value for name, value in page.items() if "replica_generation_tokens_total" in name]
    assert len(each) == 2 and all(each)
    total = next(value for name, value in page.items() if "vllm:generation_tokens_total" in name)
    assert total == sum(each)


async def test_a_killed_replica_changes_no_text(
    client: TextClient, plain: list[ServedText]
) -> None:
    before = await replica_processes(client)
    kill = asyncio.create_task(killed(client, 0.1))
    found = await all_answers(client, STREAMS)
    await kill
    assert differences(plain, enumerate(found)) == []
    assert len(before) == 2
