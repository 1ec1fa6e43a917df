"""How a round's rows find the tokens that they commit, from the logits of their nodes."""

from collections.abc import Mapping, Sequence

from torch import Tensor

from draftwerk.model.reference.sampler import SamplingRequest
from draftwerk.model.step.backend import Backend
from draftwerk.model.step.presampled import Presampled
from draftwerk.model.step.row_plan import RowPlan
from draftwerk.model.step.tree_walk import TreeWalk
from draftwerk.model.text.grammar import BadGrammar

BROKEN = "the model computed something that is not a number"


def broken_logits(plan: RowPlan, presampled: Presampled) -> str:
    """Return why a row fails that needs all its logits, or nothing."""
    if plan.needs_all and not presampled.broken.isdisjoint(plan.logits_rows()):
        return BROKEN
    return ""


def verify(
    backend: Backend, logits: Tensor, walks: Sequence[TreeWalk], presampled: Presampled
) -> None:
    """Follow the seeded target's one answer at each node, all rows a level at a time."""
    walking = [walk for walk in walks if _follow(walk, presampled.tokens)]
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
            if walk.advance(token) and _follow(walk, presampled.tokens)
        ]


def _follow(walk: TreeWalk, known: Mapping[int, int]) -> bool:
    """Walk on as far as the tokens are known; return whether another one is to be asked for."""
    while (token := known.get(walk.logits_row)) is not None:
        if not walk.advance(token):
            return False
    return True


def _request(walk: TreeWalk, presampled: Presampled) -> SamplingRequest | None:
    """Return the sampling request at the node where a walk is; None ends the walk in error."""
    logits_row = walk.logits_row
    if logits_row in presampled.broken:
        walk.error = BROKEN
        return None
    try:
        return walk.plan.sequence.sampling_request(logits_row, walk.tokens)
    except BadGrammar as error:
        walk.error = f"the grammar cannot be followed: {error}"
        return None
