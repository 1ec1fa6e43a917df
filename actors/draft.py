"""Fills rounds with guesses: from sources that read the text, and from a draft model."""

from dataclasses import dataclass

from actors.device import Device, DeviceLostError
from actors.mailbox import Inbox, Outbox
from speculative.proposer import Proposer
from speculative.rounds import NO_DRAFT, Draft, Proposal, Round


@dataclass(slots=True)
class Drafter:
    inbox: Inbox[Round]
    verifier: Outbox[Proposal]
    proposer: Proposer
    model: Device[Round, tuple[Draft, ...]] | None

    async def run(self) -> None:
        async for round_ in self.inbox:
            model_drafts = await self._ask_model(round_)
            drafts = self.proposer.propose(round_, model_drafts)
            # One proposal per round under way, and the mailbox holds `lanes`: never full.
            self.verifier.send_nowait(Proposal(round_, drafts))

    async def _ask_model(self, round_: Round) -> tuple[Draft, ...]:
        """Return the draft model's guesses; it sees every round, to read the prompts too."""
        if self.model is not None:
            try:
                return await self.model.run(round_)
            except DeviceLostError:
                self.model = None  # A guess less costs speed, never text: rounds go on without it.
        return (NO_DRAFT,) * len(round_.rows)
