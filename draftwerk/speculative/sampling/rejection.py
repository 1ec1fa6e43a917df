"""Rejection sampling: the classical verification rules (speculative sampling, block verification).

For drafts that were drawn from a known distribution.

Both take a chain of drafted tokens, the draft's distribution before each (`draft_distributions`,
one per token) and the target's before each and after the last (`target_distributions`, one more),
as probabilities by token. They return odds: entry i is the chance that exactly i tokens are
accepted. The next token then comes from `ratio_distribution` or `block_distribution`. A draft
without probabilities is a point mass.

Whether a token is drafted at all may depend only on what was known before it was drawn; keyed
verification has no such condition, and must not be mixed with these.
"""

from collections.abc import Sequence

Distribution = Sequence[float]


def ratio_odds(
    tokens: Sequence[int],
    draft_distributions: Sequence[Distribution],
    target_distributions: Sequence[Distribution],
) -> list[float]:
    """Return the odds of the ratio rule (arXiv 2211.17192, 2302.01318): stop at a failure."""
    odds: list[float] = []
    reached = 1.0
    for token, draft, target in zip(
        tokens, draft_distributions, target_distributions, strict=False
    ):
        accepts = min(1.0, target[token] / draft[token])
        odds.append(reached * (1.0 - accepts))
        reached *= accepts
    return [*odds, reached]


def ratio_distribution(
    accepted: int,
    draft_distributions: Sequence[Distribution],
    target_distributions: Sequence[Distribution],
) -> list[float]:
    """Return the distribution of the token after `accepted` drafted ones."""
    if accepted == len(draft_distributions):
        return list(target_distributions[accepted])
    return _residual(1.0, target_distributions[accepted], draft_distributions[accepted])


def block_odds(
    tokens: Sequence[int],
    draft_distributions: Sequence[Distribution],
    target_distributions: Sequence[Distribution],
) -> list[float]:
    """Return the odds of block verification (arXiv 2403.10444): the longest prefix that may stand.

    Each prefix may stand with a chance of its own, whatever becomes of the shorter ones.
    """
    stands: list[float] = []
    ratios = _ratios(tokens, draft_distributions, target_distributions)
    for ratio, draft, target in zip(
        ratios, draft_distributions, target_distributions, strict=False
    ):
        excess = _excess(ratio, target, draft)
        stands.append(excess / (excess + 1.0 - ratio) if excess + 1.0 > ratio else 1.0)
    odds: list[float] = []
    passed = 1.0
    for stand in reversed([*stands, ratios[-1]]):
        odds.append(passed * stand)
        passed *= 1.0 - stand
    return odds[::-1]


def block_distribution(
    accepted: int,
    tokens: Sequence[int],
    draft_distributions: Sequence[Distribution],
    target_distributions: Sequence[Distribution],
) -> list[float]:
    """Return the distribution of the token after `accepted` drafted ones."""
    if accepted == len(draft_distributions):
        return list(target_distributions[accepted])
    ratio = _ratios(tokens, draft_distributions, target_distributions)[accepted]
    return _residual(ratio, target_distributions[accepted], draft_distributions[accepted])


def draw(odds: Distribution, uniform: float) -> int:
    """Return the outcome that a uniform number in [0, 1) falls on."""
    for outcome, chance in enumerate(odds):
        uniform -= chance
        if uniform < 0.0:
            return outcome
    return max(outcome for outcome, chance in enumerate(odds) if chance > 0.0)  # rounding


def _ratios(
    tokens: Sequence[int],
    draft_distributions: Sequence[Distribution],
    target_distributions: Sequence[Distribution],
) -> list[float]:
    """Return by prefix length the running, clipped ratio of the two distributions."""
    ratios = [1.0]
    for token, draft, target in zip(
        tokens, draft_distributions, target_distributions, strict=False
    ):
        ratios.append(min(1.0, ratios[-1] * target[token] / draft[token]))
    return ratios


def _excess(scale: float, target: Distribution, draft: Distribution) -> float:
    return sum(max(scale * t - d, 0.0) for t, d in zip(target, draft, strict=True))


def _residual(scale: float, target: Distribution, draft: Distribution) -> list[float]:
    """Return the normalised part of the scaled target distribution that the draft's does not
    cover."""
    excess = [max(scale * t - d, 0.0) for t, d in zip(target, draft, strict=True)]
    total = sum(excess)
    return [chance / total for chance in excess] if total > 0.0 else list(target)
