"""How a round's rows find the tokens that they commit, from the logits of their nodes."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import torch
from torch import Tensor

from draftwerk.model.reference.sampler import SamplingRequest, scores_of, truncated
from draftwerk.model.step.backend import Backend
from draftwerk.model.step.presampled import Presampled
from draftwerk.model.step.row_plan import RowPlan
from draftwerk.model.step.tree_walk import TreeWalk
from draftwerk.model.text.grammar import BadGrammar
from draftwerk.speculative.sampling.verification import (
    DISTRIBUTION_MAX,
    UniformUse,
    Verify,
    uniform_of,
    verify_chain,
)

BROKEN = "the model computed something that is not a number"


class Rule(Protocol):
    """Walks every row as far as its draft stands, and one token on."""

    def __call__(
        self, backend: Backend, logits: Tensor, walks: Sequence[TreeWalk], presampled: Presampled, /
    ) -> None: ...


def broken_logits(plan: RowPlan, presampled: Presampled) -> str:
    """Return why a row fails that needs all its logits, or nothing."""
    if plan.needs_all and not presampled.broken.isdisjoint(plan.logits_rows()):
        return BROKEN
    return ""


def keyed(
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


class Drawn:
    """A classical rule, for chains that come with the distributions they were drawn from."""

    def __init__(self, rule: Verify) -> None:
        self._rule: Verify = rule

    def __call__(
        self, backend: Backend, logits: Tensor, walks: Sequence[TreeWalk], presampled: Presampled
    ) -> None:
        others = [walk for walk in walks if not walk.plan.draft.distributions]
        keyed(backend, logits, others, presampled)
        for walk in walks:
            if walk.plan.draft.distributions and not walk.error:
                self._walk(logits, walk)

    def _walk(self, logits: Tensor, walk: TreeWalk) -> None:
        plan = walk.plan
        draft, stop, sampling = plan.draft, plan.row.stop, plan.sequence.sampling
        nodes = range(len(draft.tokens) + 1)
        requests = [
            plan.sequence.sampling_request(plan.first + n, list(draft.tokens[:n])) for n in nodes
        ]
        targets = [target_distribution(logits, request) for request in requests]
        outcomes = [[token for token, _ in distribution] for distribution in draft.distributions]
        # One outcome more stands for all tokens that could not have been drafted.
        drafted = [
            [*(chance for _, chance in distribution), 0.0] for distribution in draft.distributions
        ]
        wanted = [
            _gathered(distribution, found)
            for distribution, found in zip(targets, outcomes, strict=False)
        ]
        indices = [found.index(t) for found, t in zip(outcomes, draft.tokens, strict=True)]
        uniform = uniform_of(sampling, stop, 0, UniformUse.ACCEPTS)
        accepted, distribution = verify_chain(self._rule, indices, drafted, wanted, uniform)
        last = uniform_of(sampling, stop, 0, UniformUse.LAST)
        if not distribution:
            walk.take(accepted, drawn(targets[accepted], last))
            return
        index = drawn(torch.tensor(distribution, dtype=torch.float64), last)
        if index < len(outcomes[accepted]):
            walk.take(accepted, outcomes[accepted][index])
            return
        outside = targets[accepted].clone()
        outside[outcomes[accepted]] = 0.0
        walk.take(accepted, drawn(outside, uniform_of(sampling, stop, 0, UniformUse.OUTSIDE)))


def target_distribution(logits: Tensor, request: SamplingRequest) -> Tensor:
    """Return the distribution that the sampling rule draws from: float64 [vocab], on the CPU."""
    scores = scores_of(logits, request).cpu() / request.sampling.temperature
    tokens, values = truncated(scores, request.sampling)
    distribution = torch.zeros(len(scores), dtype=torch.float64)
    distribution[tokens] = values.softmax(-1)
    return distribution


def draft_distribution(logits: Tensor, request: SamplingRequest) -> tuple[tuple[int, float], ...]:
    """Return (token, chance) of the best tokens of that distribution: what a draft may be drawn
    from."""
    chances, tokens = target_distribution(logits, request).topk(
        min(DISTRIBUTION_MAX, logits.shape[1])
    )
    chances /= chances.sum()
    pairs = zip(tokens.tolist(), chances.tolist(), strict=True)
    return tuple((token, chance) for token, chance in pairs if chance > 0.0)


def drawn(weights: Tensor, uniform: float) -> int:
    """Return the index that a number in (0, 1) falls on; weights need not add up to one."""
    heights = weights.cumsum(0)
    index = int(torch.searchsorted(heights, uniform * heights[-1], right=True))
    return min(index, int(weights.nonzero()[-1]))  # rounding


def _gathered(distribution: Tensor, tokens: list[int]) -> list[float]:
    chances: list[float] = distribution[tokens].tolist()
    return [*chances, max(0.0, float(distribution.sum()) - sum(chances))]


def rule_of(verify: Verify) -> Rule:
    """Return the rule with a name."""
    return keyed if verify == "keyed" else Drawn(verify)
