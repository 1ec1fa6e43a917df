"""Has proposals verified by the target's process: one forward pass a round."""

from dataclasses import dataclass, field

import anyio
from msgspec.structs import replace

from draftwerk.actors.devices.device import Device
from draftwerk.actors.mailbox import Inbox, Outbox, mailbox
from draftwerk.actors.messages import CacheMessage
from draftwerk.actors.monitoring.figures import Figures
from draftwerk.machine.cpus import step_aside
from draftwerk.speculative.rounds import Proposal, Verdict


@dataclass(slots=True)
class Verifier:
    """Sends each round on at once, behind the one that the model computes, and hands on answers."""

    inbox: Inbox[Proposal]
    cache: Outbox[CacheMessage]
    model: Device[Proposal, Verdict]
    figures: Figures = field(default_factory=Figures)
    pipeline_depth: int = 1
    up: bool = False
    """Whether the model has been there since this actor began."""

    @property
    def is_ready(self) -> bool:
        """Whether the model is there now."""
        return self.up and self.model.alive

    async def run(self) -> None:
        """Have the model ready, then verify rounds; ends if it is lost while idle."""
        if not self.model.alive:
            with self.figures.trace.span("verifier", "start the model"):
                await self.model.revive()
        self.up = True
        # A place for every round under way: never full.
        sent, answered = mailbox[Proposal](self.pipeline_depth)
        with sent, answered:
            try:
                async with anyio.create_task_group() as beside:
                    beside.start_soon(self.model.watch)
                    beside.start_soon(self._answers, answered)
                    async for proposal in self.inbox:
                        await self.model.send(proposal)
                        # Not before it: no answer comes to a round that could not be sent.
                        sent.send_nowait(proposal)
                    # The inbox is over; the watch would never end by itself.
                    beside.cancel_scope.cancel()
            finally:
                # A round under way still writes to pages that the next pipeline gives to others.
                await self.model.settle()

    async def _answers(self, sent: Inbox[Proposal]) -> None:
        """Hand on the answer to each round that was sent."""
        async for proposal in sent:
            with self.figures.trace.span("verifier", f"step {proposal.round.round_id}"):
                verdict = await self.model.receive()
            # Else the model's process waits for this one while other CPUs are idle.
            step_aside(verdict.report.cpu)
            self.figures.step_ended(verdict)
            if proposal.drafts:
                verdict = replace(verdict, drafts=proposal.drafts)
            # The cache's mailbox has a place for every round under way: never full.
            self.cache.send_nowait(verdict)
