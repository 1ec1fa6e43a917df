"""Blocks that go to a store and come back: in order, in time, and never under a round's hands."""

from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from typing import TypeVar

import anyio
import pytest

from draftwerk.actors.mailbox import mailbox
from draftwerk.actors.messages import CacheMessage, Released
from draftwerk.actors.tier_two.fetching import Fetching
from draftwerk.actors.tier_two.intake import Intake, LoadCosts
from draftwerk.actors.tier_two.kept_pool import KeptPool
from draftwerk.actors.tier_two.write_behind import WriteBehind
from draftwerk.cache.blocks import BlockPool
from draftwerk.cache.kinds.recurrent_states import SequenceStates, StateRules
from draftwerk.cache.memory import CachePools, SequenceMemory
from draftwerk.cache.tables import BlockNamer
from draftwerk.speculative.costs.work import StepLoad
from draftwerk.speculative.request import Options, SequenceRequest
from draftwerk.speculative.row_parts.step_report import StepReport
from draftwerk.speculative.sampling import Sampling
from draftwerk.speculative.scheduler import RoundLimits, Scheduler
from draftwerk.speculative.sequence import Sequence
from tests.actors.loops import on_both_loops, settle
from tests.support.simulation import ToyStore

R = TypeVar("R")
TOKENS = tuple(range(1, 18))
"""Four full blocks of four, and a token more."""
SPACE = Options(sampling=Sampling(seed=5)).name_space


def store(blocks: int) -> ToyStore[int]:
    """Return a store over pages that are numbers."""
    return ToyStore([-1] * blocks, 1, Random(1), lossy=0.0)


@dataclass
class Latch:
    """A worker whose work waits until it is let through."""

    open: anyio.Event = field(default_factory=anyio.Event)
    begun: int = 0

    async def run(self, work: Callable[[], R]) -> R:
        self.begun += 1
        await self.open.wait()
        return work()


class TwoAlone(Latch):
    """A worker that does two pieces of work."""

    async def run(self, work: Callable[[], R]) -> R:
        self.begun += 1
        if self.begun > 2:
            await anyio.sleep_forever()
        return work()


class Desk:
    """A pool of a few blocks with its second tier, and the cache's end of the mailbox.

    With slots of states, of a model with recurrent layers.
    """

    def __init__(self, blocks: int = 8, slots: int = 0) -> None:
        outbox, self.arrived = mailbox[CacheMessage](99)
        self.streams = [outbox, self.arrived]
        self.rules = StateRules(BlockPool(slots, 1), 2, 4, 8)
        self.scheduler = Scheduler(
            CachePools(BlockPool(blocks, 4), (self.rules,) if slots else ()), RoundLimits()
        )
        self.pool = self.scheduler.pool
        self.shelf = store(blocks)
        self.latch = Latch()
        self.namer = BlockNamer(b"k")
        self.blocks = KeptPool(self.pool, self.shelf)
        self.behind = WriteBehind(self.blocks, self.latch, pause_s=0.0)
        self.states = store(slots)
        self.snapshots = KeptPool(self.rules.pool, self.states, self.rules.passing)
        self.state_writer = WriteBehind(self.snapshots, self.latch, pause_s=0.0)
        self.intake = Intake(
            self.scheduler,
            self.namer,
            self.blocks,
            self.snapshots if slots else None,
            self.latch,
        )
        self.fetching = Fetching(self.intake, outbox)

    def text(self, number: int = 1, name_space: str = SPACE) -> Sequence:
        """Return a sequence whose prompt is the text."""
        return Sequence(
            sequence_id=number,
            request=SequenceRequest(
                request_id=f"r{number}",
                choice=0,
                prompt_count=len(TOKENS),
                sampling=Sampling(seed=5),
                tokens_max=8,
                draft_max=0,
                name_space=name_space,
            ),
            tokens=list(TOKENS),
            memory=self.scheduler.pools.memory(self.namer, name_space, len(TOKENS)),
        )

    def enter(self, number: int = 1, name_space: str = SPACE) -> Sequence:
        """Have such a sequence run."""
        text = self.text(number, name_space)
        assert self.scheduler.running_set.admit(text)
        return text

    def read(self, text: Sequence) -> int:
        """Return how much of a text need not be computed; it ends."""
        assert not text.held_back
        computed = text.computed
        self.scheduler.running_set.end(text)
        return computed

    def use(self) -> None:
        """Compute the text, and let go of it."""
        memory = self.memory()
        if self.states.pages:
            deque(self.scan(memory, len(TOKENS)), maxlen=0)
        memory.leave()

    def memory(self) -> SequenceMemory:
        """Return the memory of the text, computed."""
        memory = CachePools(self.pool).memory(self.namer, SPACE)
        assert memory.reserve(len(TOKENS))
        for number, block in enumerate(memory.table.blocks):
            self.shelf.pages[block] = number
        memory.commit(TOKENS, 0, 16)
        return memory

    def scan(self, memory: SequenceMemory, prompt_count: int) -> Iterator[int]:
        """Compute its states in rows, those of a reply token after token; yields their ends."""
        states = SequenceStates(self.rules, SPACE, prompt_count=prompt_count)
        assert states.enter([]) == 0
        bounds = [0, *range(prompt_count, len(TOKENS) + 1)]
        for start, stop in pairwise(bounds):
            for position, slot in states.row_state(start, stop, stop).saves:
                self.states.pages[slot] = position
            states.end_row(start, stop, memory.names)
            yield stop
        states.leave()

    def lose(self) -> None:
        """Have every block and every state evicted, and filled with something else."""
        for pool, pages in ((self.pool, self.shelf.pages), (self.rules.pool, self.states.pages)):
            blocks = pool.take(pool.available)
            assert blocks is not None
            for block in blocks:
                pages[block] = 99
            pool.drop(blocks)

    async def received(self) -> list[CacheMessage]:
        await settle()
        found: list[CacheMessage] = []
        while self.arrived.depth:
            found.append(await self.arrived.receive())
        return found

    async def let_through(self) -> list[CacheMessage]:
        """Let the worker do what waits for it; returns what is received of it."""
        self.latch.open.set()
        return await self.received()

    def found(self) -> list[int]:
        """Return the content of what the text finds in the pool."""
        memory = CachePools(self.pool).memory(self.namer, SPACE)
        memory.enter(TOKENS)
        content = [self.shelf.pages[block] for block in memory.table.blocks]
        memory.leave()
        return content

    def found_state(self) -> int | None:
        """Return the content of the snapshot from which the text goes on."""
        pool, names = self.rules.pool, self.namer.chain(TOKENS[:-1], 4, SPACE)
        found = [slot for name in names if (slot := pool.find(name)) is not None]
        return self.states.pages[found[-1]] if found else None


@asynccontextmanager
async def desk(blocks: int = 8, slots: int = 0) -> AsyncGenerator[Desk]:
    made = Desk(blocks, slots)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(made.fetching.run)
            tasks.start_soon(made.behind.run)
            tasks.start_soon(made.state_writer.run)
            yield made
            tasks.cancel_scope.cancel()
        made.pool.check()
    finally:
        for stream in made.streams:
            stream.close()


async def kept(made: Desk) -> None:
    """Have the text computed, kept and lost."""
    made.latch.open.set()
    made.use()
    while len(made.shelf.kept) < 4:
        await settle()
    made.lose()
    made.latch.open = anyio.Event()


@on_both_loops
async def test_the_end_waits_for_what_is_being_written() -> None:
    async with desk() as made:
        made.use()
        while not made.latch.begun:
            await settle()
        for name in made.namer.chain(TOKENS[:-1], 4, SPACE):
            made.behind.forgotten(name)  # of those that are not begun
        kept_at_the_end: list[int] = []

        async def end() -> None:
            await made.behind.flush()
            kept_at_the_end.append(len(made.shelf.kept))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(end)
            await settle()
            made.latch.open.set()
        assert kept_at_the_end == [1]


async def ended_early() -> Desk:
    """Return a desk that has ended when it had kept two blocks of a text."""
    made = Desk()
    made.behind.worker = TwoAlone()
    made.use()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(made.behind.flush)
        await settle()
        tasks.cancel_scope.cancel()
    for stream in made.streams:
        stream.close()
    return made


@on_both_loops
async def test_an_end_that_comes_too_soon_leaves_the_ends_of_texts() -> None:
    made = await ended_early()
    first, second, *_ = made.namer.chain(TOKENS[:-1], 4, SPACE)
    assert list(made.shelf.kept) == [first, second]


def test_the_log_has_what_an_end_has_left(caplog: pytest.LogCaptureFixture) -> None:
    anyio.run(ended_early)
    assert "1 blocks are not in the store" in caplog.text


@on_both_loops
async def test_a_prompt_finds_its_blocks_after_they_were_lost() -> None:
    async with desk() as made:
        await kept(made)
        assert made.found() == []
        text = made.enter()
        assert await made.received() == [] and text.held_back
        assert await made.let_through() == [Released()]
        assert made.found() == [0, 1, 2, 3]
        assert made.read(text) == 16


@on_both_loops
async def test_blocks_that_are_evicted_before_they_are_kept_are_copied() -> None:
    async with desk() as made:
        made.use()
        made.lose()
        made.latch.open.set()
        while len(made.shelf.kept) < 4:
            await settle()
        assert sorted(made.shelf.kept.values()) == [[0], [1], [2], [3]]


@on_both_loops
async def test_sequences_with_one_prompt_load_it_once() -> None:
    async with desk(blocks=16) as made:
        await kept(made)
        before = made.latch.begun
        texts = [made.enter(number) for number in range(3)]
        assert await made.received() == []
        assert await made.let_through() == [Released()] * 3
        assert [made.read(text) for text in texts] == [16] * 3
        assert made.latch.begun - before <= 2


@on_both_loops
async def test_another_tenant_finds_nothing() -> None:
    async with desk() as made:
        await kept(made)
        assert not made.enter(name_space="b").held_back


@on_both_loops
async def test_what_the_store_has_lost_is_computed() -> None:
    async with desk() as made:
        await kept(made)
        names = made.namer.chain(TOKENS[:-1], 4, SPACE)
        text = made.enter()
        del made.shelf.kept[[*names][2]]
        assert await made.let_through() == [Released()]
        assert made.read(text) == 8


def test_no_block_of_a_round_under_way_is_taken() -> None:
    pool = BlockPool(4, 4)
    assert pool.adopt(b"a", {0, 1, 2, 3}) is None
    assert pool.adopt(b"a", {0, 1, 3}) == 2
    assert pool.adopt(b"a", set()) is None, "it is known"
    assert pool.adopt(b"b", {0, 1, 3}) == 2, "the other one is evicted"
    assert pool.find(b"a") is None
    pool.check()


@on_both_loops
async def test_what_made_a_sequence_fail_is_not_kept() -> None:
    async with desk(slots=8) as made:
        await kept(made)
        memory = made.memory()
        deque(made.scan(memory, 17), maxlen=0)
        SequenceStates(made.rules).forget_named(memory.names)
        memory.forget()
        memory.leave()
        assert not made.shelf.kept and not made.states.kept
        assert not made.rules.pool.names


@on_both_loops
async def test_a_prompt_finds_the_snapshot_at_the_end_of_its_blocks() -> None:
    async with desk(slots=8) as made:
        await kept(made)
        assert sorted(made.states.kept.values()) == [[8], [16]], "on its way, and at its end"
        assert made.found_state() is None
        text = made.enter()
        assert await made.received() == []
        assert await made.let_through() == [Released()]
        assert (made.found(), made.found_state()) == ([0, 1, 2, 3], 16)
        assert made.read(text) == 16


@on_both_loops
async def test_without_its_last_snapshot_a_prompt_has_blocks_up_to_the_one_before() -> None:
    async with desk(slots=8) as made:
        await kept(made)
        made.states.kept = {name: at for name, at in made.states.kept.items() if at == [8]}
        made.latch.open.set()
        text = made.enter()
        assert await made.received() == [Released()]
        assert (made.found(), made.found_state()) == ([0, 1], 8)
        assert made.read(text) == 8
        made.states.kept.clear()
        made.lose()
        assert not made.enter(2).held_back, "blocks are of no use without a state"


@on_both_loops
async def test_a_snapshot_that_finds_no_slot_beside_the_texts_own_waits_for_one() -> None:
    async with desk(slots=3) as made:
        await kept(made)
        text = made.enter()
        assert made.rules.pool.take(1)
        assert await made.let_through() == [Released()]
        assert not text.held_back and [*made.scheduler.running_set.waiting] == [text]


@on_both_loops
async def test_the_last_snapshot_of_a_reply_is_kept_and_none_before() -> None:
    async with desk(slots=8) as made:
        made.latch.open.set()
        for _ in made.scan(made.memory(), prompt_count=5):
            await settle()
        await settle()
        assert sorted(made.states.kept.values()) == [[4], [16]]


def test_loading_is_left_where_computing_is_quicker() -> None:
    costs = LoadCosts()
    assert costs.pays(1, 16)
    costs.computed(StepReport(load=StepLoad(3, 3), device_ms=90.0))
    costs.loaded(10, 20.0)
    assert costs.pays(1, 16), "a step of few tokens tells nothing"
    costs.computed(StepReport(load=StepLoad(100, 100), device_ms=100.0))
    assert costs.pays(1, 16) and costs.pays(7, 16) and not costs.pays(8, 16)
    costs.loaded(1, 400.0)
    assert not costs.pays(1, 16)
