"""A process that computes prompts alone: lost with work, lost while idle, given up, and back."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio

from draftwerk.actors.devices.device import DeviceLostError
from draftwerk.actors.mailbox import Inbox, Outbox, mailbox
from draftwerk.actors.messages import CacheMessage, Prefilled, PrefillProcess
from draftwerk.actors.prefill import PAUSE_S, Prefiller
from draftwerk.speculative.protocol.rounds import Proposal, Round, Row, Verdict
from draftwerk.speculative.protocol.step_report import NO_STEP
from tests.actors import loops
from tests.actors.loops import on_both_loops, settle
from tests.support.rounds import make_round

UP, DOWN = PrefillProcess(process=0, up=True), PrefillProcess(process=0, up=False)


@dataclass
class Machine:
    """A device whose process is there or not, and dies at the works named."""

    dies_at: set[int] = field(default_factory=set[int])
    """Works, counted from 1."""
    refusals: int = 0
    """Starts that will fail."""
    alive: bool = True
    works: list[Proposal] = field(default_factory=list[Proposal])
    starts: int = 0
    died: anyio.Event = field(default_factory=anyio.Event)

    async def run(self, work: Proposal) -> Verdict:
        self.works.append(work)
        if len(self.works) in self.dies_at or not self.alive:
            self.alive = False
            raise DeviceLostError("dead")
        return Verdict(work.round.round_id, work.round.pipeline_slot, (), NO_STEP)

    async def revive(self) -> None:
        self.starts += 1
        if self.refusals:
            self.refusals -= 1
            raise DeviceLostError("not now")
        self.alive = True

    async def watch(self) -> None:
        await self.died.wait()
        self.died = anyio.Event()
        self.alive = False
        raise DeviceLostError("dead while idle")

    def check(self) -> None:
        """Nothing is kept."""


@dataclass
class Bench:
    machine: Machine
    rounds: Outbox[Round]
    answers: Inbox[CacheMessage]

    def send(self, round_id: int, *sequence_ids: int) -> None:
        rows = tuple(
            Row(sequence_id=n, start=0, stop=1, samples=False, draft_max=0, blocks=(0,))
            for n in sequence_ids
        )
        self.rounds.send_nowait(make_round(*rows, round_id=round_id))

    async def answer(self) -> int:
        """Return the next answered round."""
        message = await self.answers.receive()
        assert isinstance(message, Prefilled), message
        return message.verdict.round_id


@asynccontextmanager
async def bench(machine: Machine) -> AsyncGenerator[Bench]:
    rounds, inbox = mailbox[Round](1)
    outbox, answers = mailbox[CacheMessage](4)
    with rounds, inbox, outbox, answers:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(Prefiller(0, inbox, outbox, machine).run)
            assert await answers.receive() == UP
            yield Bench(machine, rounds, answers)
            rounds.close()


@on_both_loops
async def test_a_process_forgets_the_round_before() -> None:
    async with bench(Machine()) as found:
        for round_id, rows in ((1, (5, 6)), (2, (6,)), (3, ())):
            found.send(round_id, *rows)
            assert await found.answer() == round_id
        told = [work.round.finished_ids for work in found.machine.works]
        assert told == [(), (5, 6), (6,)]


@on_both_loops
async def test_a_round_is_done_again_by_the_next_process() -> None:
    async with bench(Machine(dies_at={2})) as found:
        found.send(1, 5)
        assert await found.answer() == 1
        found.send(2, 6)
        assert await found.answer() == 2
        assert [work.round.round_id for work in found.machine.works] == [1, 2, 2]
        assert found.machine.works[-1].round.finished_ids == (), "the new one never knew it"
        assert found.machine.starts == 1


@on_both_loops
async def test_a_round_that_two_processes_die_of_is_given_back() -> None:
    async with bench(Machine(dies_at={1, 2})) as found:
        found.send(1, 5)
        assert await found.answers.receive() == DOWN
        assert await found.answers.receive() == UP
        found.send(2, 6)
        assert await found.answer() == 2


async def within(condition: Callable[[], bool]) -> None:
    with anyio.fail_after(loops.DEADLINE_S):
        while not condition():  # noqa: ASYNC110
            await anyio.sleep(PAUSE_S / 50)


@on_both_loops
async def test_a_process_that_does_not_come_back_gives_its_round_up() -> None:
    async with bench(Machine(dies_at={1}, refusals=2)) as found:
        found.send(1, 5)
        assert await found.answers.receive() == DOWN
        assert await found.answers.receive() == UP
        assert found.machine.starts == 3


@on_both_loops
async def test_a_process_that_dies_while_idle_is_started_again() -> None:
    async with bench(Machine()) as found:
        found.machine.died.set()
        await within(lambda: found.machine.starts == 1)
        await settle()
        assert found.machine.alive
        found.send(1, 5)
        assert await found.answer() == 1
