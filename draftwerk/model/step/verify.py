"""How a round's rows find the tokens that they commit, from the logits of their nodes."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from draftwerk.model.reference.sampler import SamplingRequest, scores_of, truncated
from draftwerk.model.step.backend import Backend
from draftwerk.model.step.presampled import Presampled
from draftwerk.model.step.row_plan import RowPlan
from draftwerk.model.step.tree_walk import TreeWalk
from draftwerk.model.text.grammar import BadGrammar
from draftwerk.speculative.protocol.rounds import Draft
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
    """Rejection sampling by one of its rules, for chains with their draft distributions."""

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
        tokens, stop, sampling = plan.draft.tokens, plan.row.stop, plan.sequence.sampling
        targets = [
            target_distribution(
                logits, plan.sequence.sampling_request(plan.first + n, list(tokens[:n]))
            )
            for n in range(len(tokens) + 1)
        ]
        chain = Chain.of(plan.draft, targets)
        uniform = uniform_of(sampling, stop, 0, UniformUse.ACCEPTS)
        accepted, residual = verify_chain(
            self._rule, chain.indices, chain.drafted, chain.wanted, uniform
        )
        last = uniform_of(sampling, stop, 0, UniformUse.LAST)
        if not residual:
            walk.take(accepted, drawn(targets[accepted], last))
            return
        support = chain.supports[accepted]
        index = drawn(torch.tensor(residual, dtype=torch.float64), last)
        if index < len(support):
            walk.take(accepted, support[index])
            return
        others = targets[accepted].clone()
        others[support] = 0.0
        walk.take(accepted, drawn(others, uniform_of(sampling, stop, 0, UniformUse.OUTSIDE)))


class Chain(NamedTuple):
    """A drafted chain, with what each token was drawn from and what the target would draw from.

    A distribution has an outcome for each token of the node's support, and one more, the others:
    all tokens that could not have been drafted.
    """

    supports: list[list[int]]
    """By node, the tokens that could have been drafted."""
    indices: list[int]
    """By node, the outcome that was drafted."""
    drafted: list[list[float]]
    """By node, the chances of the outcomes in the draft; 0 for the others."""
    wanted: list[list[float]]
    """By node, the same in the target."""

    @classmethod
    def of(cls, draft: Draft, targets: Sequence[Tensor]) -> "Chain":
        """Return a draft's chain; `targets` are [vocab], of every node and of what follows."""
        supports = [[token for token, _ in pairs] for pairs in draft.distributions]
        return cls(
            supports,
            [support.index(token) for support, token in zip(supports, draft.tokens, strict=True)],
            [[*(chance for _, chance in pairs), 0.0] for pairs in draft.distributions],
            [
                _gathered(distribution, support)
                for distribution, support in zip(targets, supports, strict=False)
            ],
        )


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
    """Return the chances of some tokens, and of all others together."""
    chances: list[float] = distribution[tokens].tolist()
    return [*chances, max(0.0, float(distribution.sum()) - sum(chances))]


def rule_of(verify: Verify) -> Rule:
    """Return the rule with a name."""
    return keyed if verify == "keyed" else Drawn(verify)
