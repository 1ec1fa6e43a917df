"""The walk of a round's rows down their drafts: which tokens they commit."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor

from draftwerk.model.reference.sampler import SamplingRequest
from draftwerk.model.step.backend import Backend
from draftwerk.model.step.presampled import Presampled
from draftwerk.model.step.row_plan import RowPlan
from draftwerk.model.text.grammar import BadGrammar
from draftwerk.speculative.protocol.rounds import Decision
from draftwerk.speculative.verify import TreeWalk, accept

BROKEN = "the model computed something that is not a number"


@dataclass(slots=True)
class RowWalk(TreeWalk):
    """A row's walk; its answers are numbered as the batch's rows of logits."""

    plan: RowPlan = field(kw_only=True)
    error: str = field(default="", init=False)
    """Why the row failed on the way, in words for the client."""

    @classmethod
    def begin(cls, plan: RowPlan) -> "RowWalk":
        """Return the walk of a row that has just been computed."""
        return cls(plan.draft, plan.sequence.sampling.stop_token_ids, plan.first, plan=plan)

    def decision(self) -> Decision:
        """Return what the walk has come to."""
        if self.error:
            return Decision(error=self.error)
        return Decision(tokens=tuple(self.tokens), path=tuple(self.path))


def broken_logits(plan: RowPlan, presampled: Presampled) -> str:
    """Return why a row fails that needs all its logits, reached or not; or nothing."""
    if not plan.decides and not presampled.broken.isdisjoint(plan.logits_rows()):
        return BROKEN
    return ""


def verify(
    backend: Backend, logits: Tensor, walks: Sequence[RowWalk], presampled: Presampled
) -> None:
    """Accept what the seeded target's answers allow, all rows a level at a time.

    The rule is `speculative.verify`; here the answers are computed that are not known beforehand.
    """
    walking = [walk for walk in walks if accept(walk, presampled.tokens)]
    # Rows whose next answer was known have walked on already: what is left asks for one together,
    # as a call for each row would cost more than the sampling itself.
    while walking:
        questions = [
            (walk, request)
            for walk in walking
            if (request := _request(walk, presampled)) is not None
        ]
        tokens = backend.choose(logits, [request for _, request in questions]) if questions else ()
        walking = [
            walk
            for (walk, _), token in zip(questions, tokens, strict=True)
            if walk.accept(token) and accept(walk, presampled.tokens)
        ]


def _request(walk: RowWalk, presampled: Presampled) -> SamplingRequest | None:
    """Return the sampling request at the node where a walk is; None ends the walk in error."""
    # Only where the walk comes to: behind a rejected node nothing of it is used.
    if walk.place in presampled.broken:
        walk.error = BROKEN
        return None
    try:
        return walk.plan.sequence.sampling_request(walk.place, walk.tokens)
    except BadGrammar as error:
        walk.error = f"the grammar cannot be followed: {error}"
        return None
