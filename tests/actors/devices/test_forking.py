"""Processes forked from one that has imported: they answer, end, and are started otherwise too."""

import json
import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
import pytest

from draftwerk.actors.devices.child import Child, spawn
from draftwerk.actors.devices.forking import ForkedChild, ForkServer, can_fork
from draftwerk.speculative.protocol.forks import ForkedModel, Order
from draftwerk.speculative.protocol.frames import FrameKind
from tests.actors.loops import on_both_loops

pytestmark = pytest.mark.skipif(not can_fork(), reason="a process has no descriptor here")
ECHO = """
import json, os, sys
from draftwerk.model.process import fork_server, worker
from draftwerk.speculative.protocol.frames import FrameKind

def run(role, options, grammars=None):
    given = json.loads(options)
    said = {"role": role, "forked": role != "alone", "word": given["word"]}
    if grammars:
        said["grammars"] = grammars
    if "shared" in given:
        said["shared"] = os.pread(given["shared"], 5, 0).decode()
    pipe = worker.Pipe(os.fdopen(os.dup(1), "wb"))
    pipe.send(FrameKind.READY, json.dumps(said).encode())
    sys.stdin.buffer.read()

worker.run = run
"""
COMMAND = [
    sys.executable,
    "-P",
    "-c",
    ECHO + "fork_server.main(lambda: lambda model: model.directory)",
]
ALONE = [sys.executable, "-P", "-c", ECHO + "run('alone', '{\"word\": 7}')"]


@asynccontextmanager
async def fork_server() -> AsyncGenerator[ForkServer]:
    found = ForkServer(COMMAND)
    await found.start()
    try:
        yield found
    finally:
        await found.close()


async def never() -> Child:
    raise AssertionError("it was not forked")


async def alone() -> Child:
    return await spawn(ALONE)


async def said(child: Child) -> dict[str, object]:
    kind, payload = await child.receive()
    assert kind == FrameKind.READY
    return json.loads(payload)


def is_running(process_id: int) -> bool:
    """Return whether it can still write; its entry stays until its parent has reaped it."""
    with suppress(FileNotFoundError, ProcessLookupError):
        fields = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
        return fields[0] not in "ZX"
    return False


@on_both_loops
async def test_a_forked_process_is_what_was_ordered() -> None:
    descriptor = os.memfd_create("shared")
    os.write(descriptor, b"pages")
    async with fork_server() as found:
        order = Order("target", {"word": 5, "shared": descriptor}, ("shared",))
        child = await found.spawn(order, [descriptor], never)
        expected = {"role": "target", "forked": True, "word": 5, "shared": "pages"}
        assert await said(child) == expected
        assert child.process_id not in (0, found.process_id)
        await child.close()
        assert not is_running(child.process_id), "it has ended before anything is done again"
    os.close(descriptor)


@on_both_loops
async def test_what_was_prepared_for_a_model_is_there_in_each_process_and_after_a_restart() -> None:
    async with fork_server() as found:
        found.prepare(ForkedModel("of this model", 9, (2,)))
        for word in (1, 2):
            child = await found.spawn(Order("target", {"word": word}, ()), [], never)
            assert (await said(child))["grammars"] == "of this model"
            await child.close()
        assert found.process_id is not None
        os.kill(found.process_id, signal.SIGKILL)
        await (await found.spawn(Order("target", {"word": 3}, ()), [], alone)).close()
        child = await found.spawn(Order("target", {"word": 4}, ()), [], never)
        assert (await said(child))["grammars"] == "of this model"
        await child.close()


@on_both_loops
async def test_a_killed_nursery_is_replaced_before_anyone_needs_it() -> None:
    async with fork_server() as found, anyio.create_task_group() as tasks:
        tasks.start_soon(found.watch, 0.01)
        for word in (1, 2):
            killed = found.process_id
            assert killed is not None
            os.kill(killed, signal.SIGKILL)
            while found.process_id in (killed, None):  # noqa: ASYNC110 (it is not announced)
                await anyio.sleep(0.01)
            child = await found.spawn(Order("target", {"word": word}, ()), [], never)
            assert (await said(child))["forked"] is True
            await child.close()
        tasks.cancel_scope.cancel()


@on_both_loops
async def test_a_stopped_process_is_ended_too() -> None:
    async with fork_server() as found:
        child = await found.spawn(Order("target", {"word": 1}, ()), [], never)
        await said(child)
        os.kill(child.process_id, signal.SIGSTOP)
        await child.close()
        assert not is_running(child.process_id)


@on_both_loops
async def test_what_was_forked_outlives_the_nursery_and_ends_with_its_pipe() -> None:
    async with fork_server() as found:
        child = await found.spawn(Order("target", {"word": 1}, ()), [], never)
        await said(child)
    assert is_running(child.process_id)
    assert isinstance(child, ForkedChild)
    child.pipe.close()
    await anyio.wait_readable(child.ending)
    os.close(child.ending)


@on_both_loops
async def test_without_a_nursery_a_process_is_started_the_long_way_and_the_nursery_anew() -> None:
    async with fork_server() as found:
        assert found.process_id is not None
        os.kill(found.process_id, signal.SIGKILL)
        child = await found.spawn(Order("target", {"word": 1}, ()), [], alone)
        assert (await said(child))["forked"] is False
        await child.close()
        child = await found.spawn(Order("target", {"word": 2}, ()), [], never)
        assert (await said(child))["word"] == 2
        await child.close()
