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
    walking = list(walks)
    while walking:
        asked = [
            (walk, request)
            for walk in walking
            if (request := _request(walk, presampled)) is not None
        ]
        requests = [request for _, request in asked]
        tokens = _tokens(backend, logits, requests, presampled.tokens)
        walking = [
            walk for (walk, _), token in zip(asked, tokens, strict=True) if walk.advance(token)
        ]


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


def _tokens(
    backend: Backend, logits: Tensor, requests: Sequence[SamplingRequest], known: Mapping[int, int]
) -> list[int]:
    """Return the token of every request; presampled ones are not computed again."""
    unknown = [request for request in requests if request.logits_row not in known]
    chosen = iter(backend.choose(logits, unknown) if unknown else ())
    return [
        next(chosen) if found is None else found
        for found in (known.get(request.logits_row) for request in requests)
    ]
