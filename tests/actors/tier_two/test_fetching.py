"""Blocks of sequences that enter are loaded into room of their own, and waited for briefly."""

import random
from collections.abc import Callable
from typing import TypeVar

import anyio

from draftwerk.actors.engine import Engine, running
from draftwerk.actors.messages import Released
from draftwerk.actors.tier_two import fetching
from draftwerk.actors.tier_two.fetching import Fetching
from draftwerk.actors.tier_two.intake import LOAD_S
from draftwerk.actors.tier_two.tier_two_actors import TierTwoStores
from draftwerk.speculative.request import Options
from draftwerk.speculative.sampling import Sampling
from draftwerk.speculative.sequence import Sequence
from tests.actors.loops import on_both_loops, on_virtual_time
from tests.actors.test_engine import Bench, BenchDevice, events, plain, text_of
from tests.actors.tier_two.test_intake import TOKENS, Desk, desk, kept
from tests.support.simulation import ToyStore
from tests.support.toy import Cell, ToyTarget

R = TypeVar("R")


class SteadyWorker:
    """Takes as long for every work: none is so late that copies or waits are given up."""

    async def run(self, work: Callable[[], R]) -> R:
        await anyio.sleep(0.01)
        return work()


def preempt(made: Desk, text: Sequence) -> None:
    """Preempt a sequence, and take it out of the queue again."""
    made.scheduler.running_set.preempt(text)
    waiting = made.scheduler.running_set.waiting
    assert waiting[0] is text
    waiting.remove(text)


@on_both_loops
async def test_what_is_loaded_has_room_until_it_is_read() -> None:
    async with desk(blocks=8) as made:
        await kept(made)
        text, other = made.enter(), made.text(2)
        assert made.pool.available == 3
        assert not made.scheduler.running_set.admit(other), "it has no room, and asks for nothing"
        assert await made.let_through() == [Released()]
        made.lose()
        made.shelf.kept.clear()
        assert made.found() == [0, 1, 2, 3]
        assert made.read(text) == 16
        assert made.scheduler.running_set.admit(other)
        assert other.computed == 16


@on_virtual_time
async def test_many_prompts_at_once_over_a_small_pool_find_their_blocks() -> None:
    pages: list[Cell] = [(-1, 0)] * 14 * 4
    rng, target = random.Random(1), ToyTarget(14, 4, pages=pages)
    parts = Bench().parts(
        block_count=14,
        attachments=(TierTwoStores(ToyStore(pages, 4, rng, lossy=0.0)),),
        target=lambda: BenchDevice(Bench(), target.step),
        worker=SteadyWorker(),
    )
    prompts = [tuple(1 + (first + n * n) % 9 for n in range(21)) for first in range(8)]

    async def read(engine: Engine, number: int) -> None:
        options = Options(sampling=Sampling(seed=number), tokens_max=6, ignore_eos=True)
        found = await events(engine, options, f"r{number}", prompts[number])
        assert text_of(found) == plain(options, prompt=prompts[number])

    for together in (False, True):
        async with running(parts) as engine:
            if together:
                async with anyio.create_task_group() as clients:
                    for number in range(len(prompts)):
                        clients.start_soon(read, engine, number)
            else:
                for number in range(len(prompts)):
                    await read(engine, number)
            found = engine.snapshot().counts.prefix_hits
    assert found == 20 * len(prompts)


@on_both_loops
async def test_who_is_preempted_gives_the_room_back_at_once() -> None:
    async with desk() as made:
        await kept(made)
        text = made.enter()
        assert await made.received() == []
        preempt(made, text)
        assert made.pool.used == 0
        assert await made.let_through() == [Released()]
        assert made.pool.used == 0 and not text.held_back
        assert made.found() == [0, 1, 2, 3], "others may have waited for them"


@on_both_loops
async def test_who_is_cancelled_does_as_well() -> None:
    async with desk() as made:
        await kept(made)
        text = made.enter()
        made.scheduler.cancel("r1")
        assert made.pool.used == 0 and made.scheduler.idle
        assert await made.let_through() == [Released()]
        assert made.pool.used == 0 and not text.held_back


@on_both_loops
async def test_it_waits_once_for_each_time_that_it_enters() -> None:
    async with desk() as made:
        await kept(made)
        text = made.enter()
        assert await made.received() == []
        preempt(made, text)
        assert made.scheduler.running_set.admit(text)
        assert text.held_back
        assert await made.let_through() == [Released()] * 2
        assert made.scheduler.stats.blocks_returned == 4
        assert text.computed == 16 and not text.held_back


@on_virtual_time
async def test_a_fetch_that_was_given_up_ends_no_wait_for_the_next_one() -> None:
    async with desk() as made:
        await kept(made)
        text = made.enter()
        await anyio.sleep(LOAD_S / 2)
        preempt(made, text)
        assert made.scheduler.running_set.admit(text)
        assert await made.arrived.receive() == Released()
        assert text.held_back
        assert await made.arrived.receive() == Released()
        assert not text.held_back


@on_virtual_time
async def test_a_store_that_hangs_delays_a_sequence_and_no_other_after_it() -> None:
    async with desk() as made:
        await kept(made)
        reading = made.intake._reading  # of a thread, which cannot be given up
        text = made.enter()
        begun = anyio.current_time()
        assert await made.arrived.receive() == Released()
        assert anyio.current_time() - begun == LOAD_S
        assert made.read(text) == 0
        reading[next(iter(made.intake.missing(TOKENS[:-1], text.request.name_space)))] = begun
        assert made.intake.hangs and not made.fetching.begin(made.text(2))
        reading.clear()
        assert made.fetching.begin(made.text(3))


@on_both_loops
async def test_no_more_are_waited_for_than_there_are_messages_for() -> None:
    async with desk(blocks=16) as made:
        await kept(made)
        made.fetching = Fetching(made.intake, made.fetching.cache)
        made.fetching._under_way = fetching.FETCHES_MAX - 1
        assert [made.enter(number).held_back for number in range(3)] == [True, False, False]


@on_both_loops
async def test_what_is_computed_sooner_is_not_waited_for() -> None:
    async with desk() as made:
        await kept(made)
        made.intake.costs.token_ms, made.intake.costs.byte_ms = 1.0, 50.0
        assert not made.enter().held_back
