"""Mailboxes and devices: the small things that everything stands on."""

import asyncio
import random
import threading
from collections.abc import Awaitable, Callable
from functools import partial

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftwerk.actors.devices.device import ThreadWorker
from draftwerk.actors.mailbox import Outbox, mailbox, receive_all
from draftwerk.actors.monitoring.histogram import Histogram
from tests.actors.loops import on_both_loops, on_virtual_time, settle
from tests.support.waiting import DEADLINE_S


def is_full(outbox: Outbox[int]) -> bool:
    """Send a message, or return True where there is no room for one."""
    try:
        outbox.send_nowait(0)
    except anyio.WouldBlock:
        return True
    return False


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
        assert is_full(outbox)


@on_both_loops
async def test_a_mailbox_that_was_waited_at_keeps_its_bound() -> None:
    outbox, inbox = mailbox[int](1)
    with outbox, inbox:
        for n in range(3):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(inbox.receive)
                await settle()
                outbox.send_nowait(n)
        outbox.send_nowait(3)
        assert is_full(outbox)


@on_both_loops
async def test_ordinary_work_is_abandoned_at_its_deadline() -> None:
    release = threading.Event()
    with anyio.move_on_after(0.002) as scope:
        await ThreadWorker().run(release.wait)
    assert scope.cancelled_caught
    release.set()


@on_virtual_time
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
        assert waits.total == pytest.approx(0.12)


@on_virtual_time
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


@on_both_loops
async def test_a_reader_that_gave_up_has_no_place_for_a_message() -> None:
    outbox, inbox = mailbox[int](1)
    with outbox, inbox:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(inbox.receive)
            await settle()
            tasks.cancel_scope.cancel()
        outbox.send_nowait(7)
        assert is_full(outbox)
        assert await inbox.receive() == 7


@on_both_loops
async def test_a_mailbox_has_one_reader() -> None:
    outbox, inbox = mailbox[int](1)
    with outbox, inbox:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(inbox.receive)
            await settle()
            with pytest.raises(AssertionError, match="two tasks read"):
                await inbox.receive()
            outbox.send_nowait(1)


@on_both_loops
async def test_one_task_waits_for_room_at_a_time() -> None:
    outbox, inbox = mailbox[int](1)
    with outbox, inbox:
        async with anyio.create_task_group() as tasks:
            outbox.send_nowait(1)
            tasks.start_soon(outbox.send, 2)
            await settle()
            with pytest.raises(AssertionError, match="two tasks wait for room"):
                await outbox.send(3)
            assert [await inbox.receive() for _ in range(2)] == [1, 2]


@on_both_loops
async def test_who_waits_at_a_mailbox_hears_of_its_closing() -> None:
    heard: list[type[Exception]] = []

    async def hears(wait: Callable[[], Awaitable[object]]) -> None:
        try:
            await wait()
        except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            heard.append(type(error))

    for close_outbox in (True, False):
        for is_full in (True, False):
            outbox, inbox = mailbox[int](1)
            async with anyio.create_task_group() as tasks:
                if is_full:
                    outbox.send_nowait(1)
                    tasks.start_soon(hears, partial(outbox.send, 2))
                else:
                    tasks.start_soon(hears, inbox.receive)
                await settle()
                (outbox if close_outbox else inbox).close()
            outbox.close()
            inbox.close()
    assert heard == [
        anyio.ClosedResourceError,
        anyio.EndOfStream,
        anyio.BrokenResourceError,
        anyio.ClosedResourceError,
    ]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@given(seed=st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_every_message_is_read_once_whoever_is_cancelled(backend: str, seed: int) -> None:
    anyio.run(_busy_mailbox, random.Random(seed), backend=backend)


async def _busy_mailbox(dice: random.Random) -> None:
    """Send through a mailbox while its reader is cancelled at random moments."""
    bound, count = dice.randint(1, 3), 20
    outbox, inbox = mailbox[int](bound)
    got: list[int] = []

    async def write() -> None:
        for n in range(count):
            await outbox.send(n)
            assert inbox.depth <= bound + 1
            for _ in range(dice.randint(0, 2)):
                await anyio.lowlevel.checkpoint()
        outbox.close()

    async def read() -> None:
        while True:
            with anyio.CancelScope() as scope:
                scopes.append(scope)
                try:
                    got.append(await inbox.receive())
                except anyio.EndOfStream:
                    return

    async def disturb() -> None:
        while len(got) < count:
            scopes[-1].cancel()
            await anyio.lowlevel.checkpoint()

    scopes: list[anyio.CancelScope] = []
    with inbox, anyio.fail_after(DEADLINE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            tasks.start_soon(write)
            await anyio.lowlevel.checkpoint()
            tasks.start_soon(disturb)
    assert got == list(range(count))


def test_a_message_for_a_task_that_asyncio_cancels_is_not_lost() -> None:
    async def run() -> None:
        outbox, inbox = mailbox[int](1)
        first = asyncio.create_task(inbox.receive())
        await asyncio.sleep(0)
        outbox.send_nowait(7)
        first.cancel()
        assert await asyncio.wait([first]) and first.cancelled()
        assert await inbox.receive() == 7

    asyncio.run(run())
