"""Blocks that are loaded before anybody asks for them: as far as the pool is empty."""

import anyio

from draftwerk.actors.tier_two.warming import Warming
from tests.actors.loops import on_both_loops
from tests.actors.tier_two.test_intake import SPACE, TOKENS, desk, kept


@on_both_loops
async def test_the_blocks_used_last_are_there_after_a_start() -> None:
    async with desk() as made, anyio.create_task_group() as tasks:
        await kept(made)
        made.latch.open.set()
        warming = Warming(made.intake)
        tasks.start_soon(warming.run)
        await warming.order([]).wait()
        assert made.found() == [0, 1, 2, 3]
        tasks.cancel_scope.cancel()


@on_both_loops
async def test_half_of_the_empty_blocks_are_left() -> None:
    async with desk(blocks=6) as made, anyio.create_task_group() as tasks:
        await kept(made)
        made.latch.open.set()
        names, kept_here = [*made.namer.chain(TOKENS[:-1], 4, SPACE)], dict(made.shelf.kept)
        made.shelf.kept.clear()
        warming = Warming(made.intake)
        made.shelf.kept.update(kept_here)
        tasks.start_soon(warming.run)
        free = made.pool.free
        await warming.order(names).wait()
        assert made.found() == [0, 1, 2][: free // 2]
        tasks.cancel_scope.cancel()
