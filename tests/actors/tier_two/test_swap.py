"""Blocks of preempted sequences that come back from a store: asked for once, waited for briefly."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio

from draftwerk.actors.messages import Fetched
from draftwerk.actors.tier_two.intake import LOAD_S
from draftwerk.actors.tier_two.swap import FETCHES_MAX, SwapIn
from draftwerk.cache.tables import BlockTable
from draftwerk.speculative.requests.sequence import Sequence
from draftwerk.speculative.requests.sequence_request import SequenceRequest
from draftwerk.speculative.requests.tally import Tally
from draftwerk.speculative.sampling.params import Sampling
from tests.actors.loops import on_both_loops, on_virtual_time, settle
from tests.actors.tier_two.test_intake import SPACE, TOKENS, Desk, desk, kept


@asynccontextmanager
async def swap_desk() -> AsyncGenerator[tuple[Desk, SwapIn]]:
    async with desk() as made, anyio.create_task_group() as tasks:
        await kept(made)
        cache = made.intake.cache
        swap = SwapIn(made.intake, cache)
        tasks.start_soon(swap.run)
        yield made, swap
        tasks.cancel_scope.cancel()


def preempted(made: Desk, sequence_id: int = 1, times: int = 1) -> Sequence:
    return Sequence(
        sequence_id=sequence_id,
        request=SequenceRequest(
            request_id="r",
            choice=0,
            prompt_count=len(TOKENS),
            sampling=Sampling(seed=5),
            tokens_max=8,
            draft_max=0,
            name_space=SPACE,
        ),
        tokens=list(TOKENS),
        table=BlockTable(made.pool, made.namer, SPACE),
        tally=Tally(preemptions=times),
    )


@on_both_loops
async def test_a_preempted_sequence_has_its_blocks_loaded() -> None:
    async with swap_desk() as (made, swap):
        sequence = preempted(made)
        assert swap.is_fetching(sequence)
        await settle()
        assert swap.is_fetching(sequence), "they are on their way"
        made.latch.open.set()
        assert await made.received() == [Fetched()]
        assert made.found() == [0, 1, 2, 3]
        assert not swap.is_fetching(sequence)
        assert made.scheduler.stats.blocks_returned == 4


@on_both_loops
async def test_it_waits_once_for_each_preemption() -> None:
    async with swap_desk() as (made, swap):
        sequence = preempted(made)
        assert swap.is_fetching(sequence)
        made.shelf.kept.clear()
        made.latch.open.set()
        assert await made.received() == [Fetched()]
        made.shelf.kept.update(dict.fromkeys(made.namer.chain(TOKENS[:-1], 4, SPACE), 7))
        assert not swap.is_fetching(sequence), "what was not there is computed"
        sequence.tally.preemptions += 1
        assert swap.is_fetching(sequence)


@on_virtual_time
async def test_a_store_that_hangs_delays_it_and_no_more() -> None:
    async with swap_desk() as (made, swap):
        sequence = preempted(made)
        assert swap.is_fetching(sequence)
        begun = anyio.current_time()
        assert await made.arrived.receive() == Fetched()
        assert anyio.current_time() - begun < 10 * LOAD_S
        assert not swap.is_fetching(sequence)


@on_both_loops
async def test_nothing_is_loaded_for_a_sequence_without_room() -> None:
    async with swap_desk() as (made, swap):
        blocks = made.pool.take(made.pool.available - 2)
        assert blocks is not None
        assert not swap.is_fetching(sequence := preempted(made))
        made.pool.drop(blocks)
        assert swap.is_fetching(sequence), "it has not had its turn yet"


@on_both_loops
async def test_few_are_waited_for_at_once_and_the_others_are_computed() -> None:
    async with swap_desk() as (made, swap):
        several = [preempted(made, number) for number in range(FETCHES_MAX + 3)]
        assert [swap.is_fetching(each) for each in several].count(True) == FETCHES_MAX


@on_both_loops
async def test_what_is_computed_sooner_is_not_waited_for() -> None:
    async with swap_desk() as (made, swap):
        made.intake.costs.token_ms, made.intake.costs.byte_ms = 1.0, 50.0
        assert not swap.is_fetching(preempted(made))
