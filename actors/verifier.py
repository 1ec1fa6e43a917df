"""Judges proposals with the target model: one forward pass a round."""

from dataclasses import dataclass

from actors.device import Device
from actors.mailbox import Inbox, Outbox
from actors.messages import CacheMessage, Decided
from speculative.rounds import Proposal, Verdict


@dataclass(slots=True)
class Verifier:
    inbox: Inbox[Proposal]
    cache: Outbox[CacheMessage]
    model: Device[Proposal, Verdict]

    async def run(self) -> None:
        async for proposal in self.inbox:
            verdict = await self.model.run(proposal)
            # The cache's mailbox has a place for every round under way: never full.
            self.cache.send_nowait(Decided(verdict=verdict, drafts=proposal.drafts))
