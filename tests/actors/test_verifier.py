"""The verifier has its model ready, and hands on the answer to each round."""

from typing import Any

import anyio
import anyio.lowlevel

from draftwerk.actors.mailbox import mailbox
from draftwerk.actors.messages import CacheMessage
from draftwerk.actors.verifier import Verifier
from draftwerk.speculative.rounds import NO_DRAFT, Proposal, Round, Verdict
from draftwerk.speculative.row_parts.step_report import NO_STEP


class Model:
    """Answers rounds in their order; notes what it is asked for."""

    def __init__(self) -> None:
        self.alive = False
        self.asked = list[str]()
        self.rounds = list[int]()

    async def revive(self) -> None:
        self.alive = True
        self.asked.append("revive")

    async def send(self, proposal: Proposal) -> None:
        self.rounds.append(proposal.round.round_id)

    async def receive(self) -> Verdict:
        while not self.rounds:
            await anyio.lowlevel.checkpoint()
        number = self.rounds.pop(0)
        return Verdict(number, 0, (), NO_STEP, drafts=(NO_DRAFT,) * number)

    async def watch(self) -> None:
        await anyio.sleep_forever()

    async def settle(self) -> None:
        self.asked.append("settle")


def test_rounds_are_answered_in_order_and_the_device_is_left_quiet() -> None:
    async def main() -> None:
        model: Any = Model()
        rounds, inbox = mailbox[Proposal](2)
        outbox, answers = mailbox[CacheMessage](2)
        verifier = Verifier(inbox, outbox, model, pipeline_depth=2)
        assert not verifier.is_ready
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(verifier.run)
            for number in (1, 2):
                rounds.send_nowait(Proposal(Round(round_id=number, pipeline_slot=0, rows=()), ()))
            found = [await answers.receive() for _ in range(2)]
            assert verifier.is_ready
            rounds.close()
        assert [one.round_id for one in found if isinstance(one, Verdict)] == [1, 2]
        assert [len(one.drafts) for one in found if isinstance(one, Verdict)] == [1, 2]
        assert model.asked == ["revive", "settle"]

    anyio.run(main)
