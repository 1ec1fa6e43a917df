"""Judges proposals with the target model: one forward pass a round."""

from dataclasses import dataclass, field

from actors.device import Device
from actors.mailbox import Inbox, Outbox
from actors.messages import CacheMessage, Decided
from actors.trace import Trace
from speculative.rounds import Proposal, Verdict


@dataclass(slots=True)
class Verifier:
    inbox: Inbox[Proposal]
    cache: Outbox[CacheMessage]
    model: Device[Proposal, Verdict]
    trace: Trace = field(default_factory=Trace)

    async def run(self) -> None:
        async for proposal in self.inbox:
            with self.trace.span("verifier", f"step {proposal.round.round_id}"):
                verdict = await self.model.run(proposal)
            # The cache's mailbox has a place for every round under way: never full.
            self.cache.send_nowait(Decided(verdict=verdict, drafts=proposal.drafts))
