"""How a round's rows find the tokens that they commit, from the logits of their nodes."""

from collections.abc import Sequence

from torch import Tensor

from draftwerk.model.reference.sampler import SamplingRequest
from draftwerk.model.step.backend import Backend
from draftwerk.model.step.presampled import Presampled
from draftwerk.model.step.row_plan import RowPlan
from draftwerk.model.step.row_walk import RowWalk
from draftwerk.model.text.grammar import BadGrammar
from draftwerk.speculative.verify import accept

BROKEN = "the model computed something that is not a number"


def broken_logits(plan: RowPlan, presampled: Presampled) -> str:
    """Return why a row fails that needs all its logits, or nothing."""
    if plan.needs_all and not presampled.broken.isdisjoint(plan.logits_rows()):
        return BROKEN
    return ""


def verify(
    backend: Backend, logits: Tensor, walks: Sequence[RowWalk], presampled: Presampled
) -> None:
    """Accept what the seeded target's answers allow, all rows a level at a time.

    The rule is `speculative.verify`; here the answers are computed that are not known beforehand.
    """
    walking = [walk for walk in walks if accept(walk, presampled.tokens)]
    while walking:
        asked = [
            (walk, request)
            for walk in walking
            if (request := _request(walk, presampled)) is not None
        ]
        tokens = backend.choose(logits, [request for _, request in asked]) if asked else ()
        walking = [
            walk
            for (walk, _), token in zip(asked, tokens, strict=True)
            if walk.accept(token) and accept(walk, presampled.tokens)
        ]


def _request(walk: RowWalk, presampled: Presampled) -> SamplingRequest | None:
    """Return the sampling request at the node where a walk is; None ends the walk in error."""
    if walk.place in presampled.broken:
        walk.error = BROKEN
        return None
    try:
        return walk.plan.sequence.sampling_request(walk.place, walk.tokens)
    except BadGrammar as error:
        walk.error = f"the grammar cannot be followed: {error}"
        return None
