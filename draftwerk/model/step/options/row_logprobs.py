"""Log-probabilities of committed tokens and of a prompt's, all rows of a round in one call."""

from dataclasses import dataclass

from draftwerk.model.step.backend import Backend
from draftwerk.model.step.row_walk import RowPlan, RowWalk
from draftwerk.model.step.sequences import CachedSequence
from draftwerk.model.step.target_runner import RowOutputs, StepOption, StepProgress
from draftwerk.speculative.rounds import Draft, Row
from draftwerk.speculative.row_parts.chosen_logprob import ChosenLogprob
from draftwerk.speculative.sampling import Sampling

LogprobQuestion = tuple[int, int, int]
"""A row of logits, a token, and how many alternatives are wanted."""


@dataclass(slots=True, frozen=True)
class KnownLogprobs(StepOption):
    """Reports the log-probabilities of known tokens that are asked for."""

    backend: Backend

    def add_outputs(
        self, outputs: RowOutputs, row: Row, draft: Draft, sequence: CachedSequence
    ) -> None:
        if not row.options.pools:
            outputs.logits = range(
                row.options.scored[0] - row.start, row.options.scored[1] - row.start
            )

    def report(self, step: StepProgress) -> None:
        scoring = [plan for plan in step.rows if _positions(plan) and not plan.row.options.pools]
        if not scoring:
            return
        assert step.logits is not None
        asked = [_scores_asked(plan) for plan in scoring]
        answers = iter(
            self.backend.logprobs(step.logits, [question for row in asked for question in row])
        )
        for plan, row in zip(scoring, asked, strict=True):
            step.tell_option(plan, prompt_logprobs=tuple(next(answers) for _ in row))


def _positions(plan: RowPlan) -> range:
    """Return the known tokens with logits of their own, which come before the row's first."""
    return range(*plan.row.options.scored)


def _scores_asked(plan: RowPlan) -> list[LogprobQuestion]:
    """Return what is asked of a row's `scored` positions."""
    if plan.row.options.answers:
        return [(plan.first - 1, token, 0) for token in plan.row.options.answers]
    positions = _positions(plan)
    return [
        (row, plan.sequence.tokens[position + 1], plan.row.options.prompt_logprobs)
        for row, position in enumerate(positions, start=plan.first - len(positions))
    ]


@dataclass(slots=True, frozen=True)
class TokenLogprobs(StepOption):
    """Reports the log-probabilities of committed tokens, where they are asked for."""

    backend: Backend

    def report(self, step: StepProgress) -> None:
        walks = [walk for walk in step.walks if walk.plan.sequence.sampling.logprobs >= 0]
        if not walks:
            return
        assert step.logits is not None
        asked = [_tokens_asked(walk) for walk in walks]
        questions = [question for row in asked for token in row for question in token]
        answers = iter(self.backend.logprobs(step.logits, questions))
        for walk, row in zip(walks, asked, strict=True):
            found = ([(question[1], next(answers)) for question in token] for token in row)
            step.tell(walk.plan, logprobs=tuple(_with_named(token, walk) for token in found))


def _tokens_asked(walk: RowWalk) -> list[list[LogprobQuestion]]:
    """Return for every committed token what is asked of its row: that token first, then others
    that the request names."""
    plan, sampling = walk.plan, walk.plan.sequence.sampling
    if not walk.tokens:
        return []
    rows = [plan.first, *(plan.first + node + 1 for node in walk.path)]
    return [
        [(row, token, sampling.logprobs), *((row, other, 0) for other in _named(sampling, token))]
        for row, token in zip(rows, walk.tokens, strict=False)
    ]


def _named(sampling: Sampling, token: int) -> list[int]:
    return [other for other in sampling.logprob_token_ids if other != token]


def _with_named(found: list[tuple[int, ChosenLogprob]], walk: RowWalk) -> ChosenLogprob:
    """Return a token's log-probability; with it, those of the tokens that the request names."""
    chosen = found[0][1]
    if not walk.plan.sequence.sampling.logprob_token_ids:
        return chosen
    return ChosenLogprob(chosen.logprob, tuple((token, each.logprob) for token, each in found))
