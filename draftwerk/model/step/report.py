"""What a decision says beside its tokens: all rows of a round at once, or nothing."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from torch import Tensor

from draftwerk.model.reference.sampler import SamplingRequest, TopTokens
from draftwerk.model.step.backend import Backend
from draftwerk.model.step.row_logprobs import chosen_logprobs
from draftwerk.model.step.row_plan import RowPlan, candidate_requests
from draftwerk.model.step.row_walk import RowWalk
from draftwerk.model.text.grammar import BadGrammar
from draftwerk.speculative.options.beams.decisions import Candidate
from draftwerk.speculative.protocol.feedback import NOTHING_LEARNED, Feedback, TokenTopK
from draftwerk.speculative.protocol.rounds import ChosenLogprob


class RowReport(NamedTuple):
    """As in `Decision`."""

    logprobs: tuple[ChosenLogprob, ...] = ()
    candidates: tuple[tuple[Candidate, ...], ...] = ()
    feedback: Feedback = NOTHING_LEARNED


def report_rows(
    backend: Backend,
    logits: Tensor,
    walks: Sequence[RowWalk],
    best: Mapping[int, TopTokens],
) -> list[RowReport]:
    """Return the walks' reports; a branch whose grammar cannot be followed fails.

    `best` holds the best tokens by row of logits, of the rows that are to report them.
    """
    topk = [_named(walk.plan, best) if best and walk.plan.wants_topk else () for walk in walks]
    columns = (
        chosen_logprobs(backend, logits, walks),
        _candidates(backend, logits, walks),
        [
            Feedback(
                topk=best_tokens,
                jump_forward=_jump_forward(walk)
                if walk.plan.sequence.matcher is not None and walk.plan.row.draft_max
                else (),
            )
            for walk, best_tokens in zip(walks, topk, strict=True)
        ],
    )
    return [RowReport(*parts) for parts in zip(*columns, strict=True)]


def topk_rows(plans: Iterable[RowPlan]) -> Iterator[int]:
    """Yield the rows of logits whose best tokens are to be reported."""
    return (row for plan in plans if plan.wants_topk for row in plan.logits_rows())


def _jump_forward(walk: RowWalk) -> tuple[int, ...]:
    """Return what the grammar forces after the committed tokens, if it goes on."""
    matcher = walk.plan.sequence.matcher
    if matcher is None or not walk.goes_on:
        return ()
    with suppress(BadGrammar):  # the next round says so, in words
        return matcher.jump_forward(walk.tokens)
    return ()


def _named(plan: RowPlan, best: Mapping[int, TopTokens]) -> tuple[TokenTopK, ...]:
    """Return the best tokens after the last known token and after every node."""
    tokens = (plan.sequence.tokens[-1], *plan.draft.tokens)
    pairs = zip(tokens, plan.logits_rows(), strict=True)
    return tuple(TokenTopK(token, *best[row]) for token, row in pairs)


def _candidates(
    backend: Backend, logits: Tensor, walks: Sequence[RowWalk]
) -> list[tuple[tuple[Candidate, ...], ...]]:
    if all(walk.plan.row.branch is None for walk in walks):
        return [()] * len(walks)
    asked = [_branch_requests(walk) for walk in walks]
    requests = [request for row in asked for request in row if request is not None]
    found = iter(backend.candidates(logits, requests))
    return [tuple(() if one is None else next(found) for one in row) for row in asked]


def _branch_requests(walk: RowWalk) -> list[tuple[SamplingRequest, int] | None]:
    if walk.plan.row.branch is None:
        return []
    try:
        return candidate_requests(walk.plan)
    except BadGrammar as error:
        walk.error = f"the grammar cannot be followed: {error}"
        return []
