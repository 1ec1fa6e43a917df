"""Rows of beam searches: the best next tokens after every node, which the search decides by."""

from dataclasses import dataclass, replace

import msgspec

from draftwerk.model.reference.sampler import SamplingRequest
from draftwerk.model.step.backend import Backend
from draftwerk.model.step.row_walk import RowPlan, RowWalk
from draftwerk.model.step.target_runner import StepOption, StepProgress
from draftwerk.model.text.grammar import BadGrammar
from draftwerk.speculative.options.beams.sampled import path_key

CandidateRequests = list[tuple[SamplingRequest, int] | None]


@dataclass(slots=True, frozen=True)
class BeamCandidates(StepOption):
    """Reports the candidates of branches; one whose grammar cannot be followed fails."""

    backend: Backend

    def report(self, step: StepProgress) -> None:
        questions: list[tuple[RowWalk, CandidateRequests]] = []
        for walk in [walk for walk in step.walks if not walk.plan.decides]:
            try:
                questions.append((walk, candidate_requests(walk.plan)))
            except BadGrammar as error:
                step.fail(walk, f"the grammar cannot be followed: {error}")
        if not questions:
            return
        requests = [request for _, row in questions for request in row if request is not None]
        assert step.logits is not None
        answers = iter(self.backend.candidates(step.logits, requests))
        for walk, row in questions:
            candidates = tuple(() if request is None else next(answers) for request in row)
            step.tell_option(walk.plan, candidates=candidates)


def candidate_requests(plan: RowPlan) -> CandidateRequests:
    """Return (request, count) after the last token computed and after every node of a branch.

    None stands for a node where the text has ended, or that the grammar does not allow: the
    search never comes there. Raises BadGrammar where it cannot be followed to the known tokens.
    """
    paths: list[list[int]] = [[]]
    for token, parent in zip(plan.draft.tokens, plan.draft.parents, strict=True):
        paths.append([*paths[parent + 1], token])
    wanted = paths[1:] if plan.begins_known else paths
    return [_candidate_request(plan, plan.first + index, path) for index, path in enumerate(wanted)]


def _candidate_request(
    plan: RowPlan, logits_row: int, path: list[int]
) -> tuple[SamplingRequest, int] | None:
    branch, sequence = plan.row.options.branch, plan.sequence
    assert branch is not None
    if path and path[-1] in sequence.sampling.stop_token_ids:
        return None
    try:
        request = sequence.sampling_request(logits_row, path)
    except BadGrammar:
        if not path:
            raise
        return None
    if request.is_greedy:
        return request, branch.candidates
    drawn = path_key([*sequence.tokens[sequence.prompt_count :], *path])
    sampling = msgspec.structs.replace(sequence.sampling, branch=drawn)
    return replace(request, sampling=sampling), branch.candidates
