"""A proposer with a draft model that has its answers ready, and one that verifies all of them."""

from draftwerk.speculative.drafting.prepared import Prepared
from draftwerk.speculative.drafting.proposer import Proposer
from draftwerk.speculative.protocol.rounds import Draft, Round


def drafts_of(
    proposer: Proposer, round_: Round, model_drafts: tuple[Draft, ...], model_ms: float = 0.0
) -> tuple[Draft, ...]:
    """Return a draft for every row; `model_drafts` are the draft model's, one per row."""
    return proposer.finish(proposer.prepare(round_), model_drafts, model_ms)


class Reckless(Proposer):
    """Verifies every guess of the draft model, those for beams too, whatever it costs."""

    def model_lengths(self, prepared: Prepared) -> tuple[int, ...]:
        """Ask for all that there is room for."""
        return tuple(row.draft_max for row in prepared.round.rows)

    def finish(
        self, prepared: Prepared, model_drafts: tuple[Draft, ...], model_ms: float = 0.0
    ) -> tuple[Draft, ...]:
        """Return the draft model's drafts where it has any."""
        own = super().finish(prepared, model_drafts, model_ms)
        return tuple(
            theirs if theirs.tokens else ours
            for ours, theirs in zip(own, model_drafts, strict=True)
        )
