"""Mailboxes and devices: the small things that everything stands on."""

import threading
import time

import anyio
import pytest

from draftwerk.actors.devices.device import ThreadDevice, ThreadWorker
from draftwerk.actors.mailbox import mailbox, receive_all
from draftwerk.actors.monitoring.histogram import Histogram
from tests.actors.loops import on_both_loops, settle


@on_both_loops
async def test_receiving_all_takes_what_is_there_in_order() -> None:
    outbox, inbox = mailbox[int](9)
    with outbox, inbox:
        for n in range(3):
            outbox.send_nowait(n)
        assert await receive_all(inbox) == [0, 1, 2]


@on_both_loops
async def test_receiving_all_waits_for_the_first() -> None:
    outbox, inbox = mailbox[int](9)
    got: list[list[int]] = []

    async def reader() -> None:
        got.append(await receive_all(inbox))

    with outbox, inbox:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(reader)
            await settle()
            assert got == []
            outbox.send_nowait(7)
        assert got == [[7]]


@on_both_loops
async def test_receiving_all_hands_over_what_came_before_the_end() -> None:
    outbox, inbox = mailbox[int](9)
    with inbox:
        outbox.send_nowait(1)
        outbox.close()
        assert await receive_all(inbox) == [1]
        with pytest.raises(anyio.EndOfStream):
            await receive_all(inbox)


@on_both_loops
async def test_a_full_mailbox_raises() -> None:
    outbox, inbox = mailbox[int](1)
    with outbox, inbox:
        outbox.send_nowait(1)
        with pytest.raises(anyio.WouldBlock):
            outbox.send_nowait(2)


@on_both_loops
async def test_a_device_runs_off_the_loop_and_one_piece_at_a_time() -> None:
    busy = threading.Lock()
    threads: set[int] = set()

    def step(work: int) -> int:
        assert busy.acquire(blocking=False), "two steps at once"
        threads.add(threading.get_ident())
        time.sleep(0.002)
        busy.release()
        return work + 1

    device = ThreadDevice(step)
    results: list[int] = []

    async def ask(work: int) -> None:
        results.append(await device.run(work))

    async with anyio.create_task_group() as tasks:
        for n in range(4):
            tasks.start_soon(ask, n)
    assert sorted(results) == [1, 2, 3, 4]
    assert threading.get_ident() not in threads


@on_both_loops
async def test_a_device_step_that_has_begun_is_never_abandoned() -> None:
    done: list[int] = []

    def step(work: int) -> int:
        time.sleep(0.02)
        done.append(work)
        return work

    with anyio.move_on_after(0.002):
        await ThreadDevice(step).run(1)
    assert done == [1]


@on_both_loops
async def test_ordinary_work_is_abandoned_at_its_deadline() -> None:
    release = threading.Event()
    with anyio.move_on_after(0.002) as scope:
        await ThreadWorker().run(release.wait)
    assert scope.cancelled_caught
    release.set()


@on_both_loops
async def test_a_mailbox_counts_how_long_each_message_was_in_it() -> None:
    waits = Histogram((0.05, 10.0))
    outbox, inbox = mailbox[str](2, waits)
    with outbox, inbox:
        outbox.send_nowait("waits")
        outbox.send_nowait("waits too")
        await anyio.sleep(0.06)
        assert await inbox.receive() == "waits"
        assert waits.counts == [0, 1, 0]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(outbox.send, "is read at once")
            await settle()
            assert await receive_all(inbox) == ["waits too", "is read at once"]
        assert waits.counts == [1, 2, 0]
        assert waits.total > 0.12


@on_both_loops
async def test_a_sender_waits_for_room_and_its_wait_is_counted() -> None:
    waits = Histogram((0.05, 10.0))
    outbox, inbox = mailbox[int](1, waits)
    with outbox, inbox:
        async with anyio.create_task_group() as tasks:
            outbox.send_nowait(1)
            tasks.start_soon(outbox.send, 2)
            await anyio.sleep(0.06)
            assert inbox.depth == 1
            assert [await inbox.receive(), await inbox.receive()] == [1, 2]
        assert waits.counts == [0, 2, 0]
