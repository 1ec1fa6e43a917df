"""Fills rounds with guesses of draft sources, where the target's process does not."""

from dataclasses import dataclass, field

from draftwerk.actors.mailbox import Inbox, Outbox
from draftwerk.actors.monitoring.trace import Trace
from draftwerk.speculative.drafting.proposer import Proposer
from draftwerk.speculative.rounds import Proposal


@dataclass(slots=True)
class Drafter:
    inbox: Inbox[Proposal]
    """Rounds that have no drafts yet."""
    verifier: Outbox[Proposal]
    proposer: Proposer | None
    """None where the target's process drafts: then no round comes by here."""
    trace: Trace = field(default_factory=Trace)

    async def run(self) -> None:
        async for proposal in self.inbox:
            proposer, round_ = self.proposer, proposal.round
            assert proposer is not None, "the target's process drafts"
            with self.trace.span("draft", f"round {round_.round_id}"):
                drafts = proposer.drafts(round_)
            # One proposal per round under way, and the mailbox holds `pipeline_depth`: never full.
            self.verifier.send_nowait(Proposal(round_, drafts))
