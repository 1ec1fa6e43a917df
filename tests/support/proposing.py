"""A proposer with a draft model that has its answers ready, and policies for tests."""

from draftwerk.speculative.drafting.policy import Estimates, KeyedPolicy
from draftwerk.speculative.drafting.prepared import Prepared
from draftwerk.speculative.drafting.proposer import Proposer
from draftwerk.speculative.protocol.rounds import Draft, Round


def drafts_of(
    proposer: Proposer, round_: Round, model_drafts: tuple[Draft, ...], model_ms: float = 0.0
) -> tuple[Draft, ...]:
    """Return a draft for every row; `model_drafts` are the draft model's, one per row."""
    return proposer.finish(proposer.prepare(round_), model_drafts, model_ms)


class Reckless(KeyedPolicy):
    """Verifies every guess of the draft model, whatever it costs: trees come often."""

    def model_lengths(self, estimates: Estimates, prepared: Prepared) -> list[int]:
        """Ask for all that there is room for."""
        return [row.draft_max for row in prepared.round.rows]

    def select(
        self,
        estimates: Estimates,
        prepared: Prepared,
        model_drafts: tuple[Draft, ...],
        model_ms: float,
    ) -> list[Draft]:
        """Return the draft model's drafts where it has any."""
        own = super().select(estimates, prepared, model_drafts, model_ms)
        return [
            theirs if theirs.tokens else ours
            for ours, theirs in zip(own, model_drafts, strict=True)
        ]
