"""The draft actor fills in drafts, a round at a time, in their order."""

from typing import Any

import anyio
import pytest

from draftwerk.actors.draft import Drafter
from draftwerk.actors.mailbox import mailbox
from draftwerk.speculative.rounds import NO_DRAFT, Proposal, Round, chain


class Counting:
    """Drafts the number of the round."""

    def drafts(self, round_: Round) -> Any:
        return (chain((round_.round_id,), "test"), NO_DRAFT)


def round_of(number: int) -> Round:
    return Round(round_id=number, pipeline_slot=0, rows=())


def test_each_round_goes_on_with_its_drafts() -> None:
    async def main() -> None:
        to_draft, rounds = mailbox[Proposal](2)
        to_verifier, proposals = mailbox[Proposal](2)
        for number in (1, 2):
            to_draft.send_nowait(Proposal(round_of(number), ()))
        to_draft.close()
        proposer: Any = Counting()
        await Drafter(rounds, to_verifier, proposer).run()
        found = [proposals.receive_nowait() for _ in range(2)]
        assert [proposal.round.round_id for proposal in found] == [1, 2]
        assert [proposal.drafts[0].tokens for proposal in found] == [(1,), (2,)]

    anyio.run(main)


def test_where_the_target_drafts_no_round_may_come_by() -> None:
    async def main() -> None:
        to_draft, rounds = mailbox[Proposal](1)
        to_verifier, _ = mailbox[Proposal](1)
        to_draft.send_nowait(Proposal(round_of(1), ()))
        with pytest.raises(AssertionError, match="the target's process drafts"):
            await Drafter(rounds, to_verifier, None).run()

    anyio.run(main)
