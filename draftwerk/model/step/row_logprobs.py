"""Log-probabilities of committed tokens and of a prompt's, all rows of a round in one call."""

from collections.abc import Sequence

from torch import Tensor

from draftwerk.model.step.backend import Backend
from draftwerk.model.step.row_plan import RowPlan
from draftwerk.model.step.row_walk import RowWalk
from draftwerk.speculative.protocol.rounds import ChosenLogprob
from draftwerk.speculative.sampling.params import Sampling

LogprobQuestion = tuple[int, int, int]
"""A row of logits, a token, and how many alternatives are wanted."""


def score_rows(
    backend: Backend, logits: Tensor, plans: Sequence[RowPlan]
) -> dict[int, tuple[ChosenLogprob, ...]]:
    """Return the log-probabilities of the known tokens that are asked for, by number of row."""
    if not plans:
        return {}
    asked = [_scores_asked(plan) for plan in plans]
    found = iter(backend.logprobs(logits, [request for row in asked for request in row]))
    return {
        plan.number: tuple(next(found) for _ in row) for plan, row in zip(plans, asked, strict=True)
    }


def _scores_asked(plan: RowPlan) -> list[LogprobQuestion]:
    """Return what is asked of a row's `scored` positions."""
    if plan.row.answers:
        return [(plan.first - 1, token, 0) for token in plan.row.answers]
    return [
        (row, plan.sequence.tokens[position + 1], plan.row.prompt_logprobs)
        for row, position in enumerate(plan.scored, start=plan.first - len(plan.scored))
    ]


def chosen_logprobs(
    backend: Backend, logits: Tensor, walks: Sequence[RowWalk]
) -> list[tuple[ChosenLogprob, ...]]:
    """Return the log-probabilities of each walk's committed tokens, where they are asked for."""
    if all(walk.plan.sequence.sampling.logprobs < 0 for walk in walks):
        return [()] * len(walks)
    asked = [_tokens_asked(walk) for walk in walks]
    requests = [request for row in asked for token in row for request in token]
    found = iter(backend.logprobs(logits, requests))
    return [
        tuple(_with_named([(request[1], next(found)) for request in token], walk) for token in row)
        for walk, row in zip(walks, asked, strict=True)
    ]


def _tokens_asked(walk: RowWalk) -> list[list[LogprobQuestion]]:
    """Return for every committed token what is asked of its row: that token first, then others
    that the request names."""
    plan, sampling = walk.plan, walk.plan.sequence.sampling
    if sampling.logprobs < 0 or not walk.tokens:
        return []
    rows = [plan.first, *(plan.first + node + 1 for node in walk.path)]
    return [
        [(row, token, sampling.logprobs), *((row, each, 0) for each in _named(sampling, token))]
        for row, token in zip(rows, walk.tokens, strict=False)
    ]


def _named(sampling: Sampling, token: int) -> list[int]:
    return [each for each in sampling.logprob_token_ids if each != token]


def _with_named(found: list[tuple[int, ChosenLogprob]], walk: RowWalk) -> ChosenLogprob:
    """Return a token's log-probability; with it, those of the tokens that the request names."""
    chosen = found[0][1]
    if not walk.plan.sequence.sampling.logprob_token_ids:
        return chosen
    return ChosenLogprob(chosen.logprob, tuple((token, each.logprob) for token, each in found))
