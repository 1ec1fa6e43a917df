"""Texts whose tokens a request names: by how much the target's token beats the one in its place."""

from math import inf

from torch import Tensor

from draftwerk.model.reference.sampler import SamplingRequest, scores_of, truncated
from draftwerk.model.step.row_walk import RowWalk
from draftwerk.model.step.target_runner import StepOption, StepProgress
from draftwerk.speculative.sampling import gumbel


class ForcedMargins(StepOption):
    """Reports the margins of walks that ended in another token than the forced one."""

    def report(self, step: StepProgress) -> None:
        for walk in step.walks:
            forced = forced_of(walk)
            if forced:
                assert step.logits is not None
                margin = _margin(step.logits, walk, forced)
                if margin is not None:
                    step.tell_option(walk.plan, margin=margin)


def forced_of(walk: RowWalk) -> tuple[int, ...]:
    """Return the generated tokens that are to be verified of a walk's text."""
    begun = walk.plan.sequence.new_sequence
    return () if begun is None else begun.options.forced_tokens


def _margin(logits: Tensor, walk: RowWalk, forced: tuple[int, ...]) -> float | None:
    sequence, tokens = walk.plan.sequence, walk.tokens
    place = len(sequence.tokens) - sequence.prompt_count + len(tokens) - 1
    if not tokens or place >= len(forced) or forced[place] == tokens[-1]:
        return None
    # The walk stands at the last drafted token that was right, or at a stop token behind it.
    row = walk.plan.first + (walk.path[len(tokens) - 2] + 1 if len(tokens) > 1 else 0)
    request = sequence.sampling_request(row, tokens[:-1])
    return lead(logits, request, tokens[-1], forced[place])


def lead(logits: Tensor, request: SamplingRequest, winner: int, other: int) -> float:
    """Return by how much one token's score, noise included, is above another's; infinite if the
    other could not be drawn."""
    scores, sampling = scores_of(logits, request), request.sampling
    if not 0 <= other < len(scores):
        return inf
    if request.is_greedy:
        return float(scores[winner] - scores[other])
    tokens, values = truncated(scores / sampling.temperature, sampling)
    score_by_token = dict(zip(tokens.tolist(), values.tolist(), strict=True))
    if other not in score_by_token:
        return inf
    noise = (
        gumbel(sampling.seed, sampling.branch, request.position, each) for each in (winner, other)
    )
    return score_by_token[winner] - score_by_token[other] + next(noise) - next(noise)
