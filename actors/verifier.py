"""Verifies proposals with the target model: one forward pass a round."""

from dataclasses import dataclass, field

import anyio

from draftwerk.actors.devices.device import Device
from draftwerk.actors.mailbox import Inbox, Outbox
from draftwerk.actors.messages import CacheMessage, Decided
from draftwerk.actors.monitoring.device_clock import DeviceClock
from draftwerk.actors.monitoring.trace import Trace
from draftwerk.speculative.protocol.rounds import Proposal, Verdict


@dataclass(slots=True)
class Verifier:
    inbox: Inbox[Proposal]
    cache: Outbox[CacheMessage]
    model: Device[Proposal, Verdict]
    trace: Trace = field(default_factory=Trace)
    device_clock: DeviceClock = field(default_factory=DeviceClock)
    up: bool = False
    """Whether the model was there when the actor began; nothing else survives its loss."""

    @property
    def is_ready(self) -> bool:
        """Whether the model is there now."""
        return self.up and self.model.alive

    async def run(self) -> None:
        """Have the model ready, then verify rounds; ends if the model is lost while idle."""
        if not self.model.alive:
            with self.trace.span("verifier", "start the model"):
                await self.model.revive()
        self.up = True
        async with anyio.create_task_group() as beside:
            beside.start_soon(self.model.watch)
            async for proposal in self.inbox:
                with self.trace.span("verifier", f"step {proposal.round.round_id}"):
                    verdict = await self.model.run(proposal)
                self.device_clock.observe(verdict.round_id, verdict.report, self.trace)
                # The cache's mailbox has a place for every round under way: never full.
                self.cache.send_nowait(Decided(verdict=verdict, drafts=proposal.drafts))
            beside.cancel_scope.cancel()
