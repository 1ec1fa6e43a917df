"""The classical verification rules for drafts that were drawn from a known law.

Both take a chain of drafted tokens, the draft's law before each (`draft_laws`, one per token) and
the target's before each and after the last (`target_laws`, one more), as probabilities by token.
They return odds: entry i is the chance that exactly i tokens are accepted. The next token then
comes from `ratio_law` or `block_law`. A draft without probabilities is a point mass.

Whether a token is drafted at all may depend only on what was known before it was drawn; keyed
verification has no such condition, and must not be mixed with these.
"""

from collections.abc import Sequence

Law = Sequence[float]


def ratio_odds(
    tokens: Sequence[int], draft_laws: Sequence[Law], target_laws: Sequence[Law]
) -> list[float]:
    """Return the odds of the ratio rule (arXiv 2211.17192, 2302.01318): stop at a failure."""
    odds: list[float] = []
    reached = 1.0
    for token, draft, target in zip(tokens, draft_laws, target_laws, strict=False):
        accepts = min(1.0, target[token] / draft[token])
        odds.append(reached * (1.0 - accepts))
        reached *= accepts
    return [*odds, reached]


def ratio_law(accepted: int, draft_laws: Sequence[Law], target_laws: Sequence[Law]) -> list[float]:
    """Return the law of the token after `accepted` drafted ones."""
    if accepted == len(draft_laws):
        return list(target_laws[accepted])
    return _residual(1.0, target_laws[accepted], draft_laws[accepted])


def block_odds(
    tokens: Sequence[int], draft_laws: Sequence[Law], target_laws: Sequence[Law]
) -> list[float]:
    """Return the odds of block verification (arXiv 2403.10444): the longest prefix that may stand.

    Each prefix may stand with a chance of its own, whatever becomes of the shorter ones.
    """
    stands: list[float] = []
    ratios = _ratios(tokens, draft_laws, target_laws)
    for ratio, draft, target in zip(ratios, draft_laws, target_laws, strict=False):
        left = _excess(ratio, target, draft)
        stands.append(left / (left + 1.0 - ratio) if left + 1.0 > ratio else 1.0)
    odds: list[float] = []
    passed = 1.0
    for stand in reversed([*stands, ratios[-1]]):
        odds.append(passed * stand)
        passed *= 1.0 - stand
    return odds[::-1]


def block_law(
    accepted: int,
    tokens: Sequence[int],
    draft_laws: Sequence[Law],
    target_laws: Sequence[Law],
) -> list[float]:
    """Return the law of the token after `accepted` drafted ones."""
    if accepted == len(draft_laws):
        return list(target_laws[accepted])
    ratio = _ratios(tokens, draft_laws, target_laws)[accepted]
    return _residual(ratio, target_laws[accepted], draft_laws[accepted])


def draw(odds: Law, coin: float) -> int:
    """Return the outcome that a uniform coin in [0, 1) falls on."""
    for outcome, chance in enumerate(odds):
        coin -= chance
        if coin < 0.0:
            return outcome
    return max(outcome for outcome, chance in enumerate(odds) if chance > 0.0)  # rounding


def _ratios(
    tokens: Sequence[int], draft_laws: Sequence[Law], target_laws: Sequence[Law]
) -> list[float]:
    """Return by prefix length the running, clipped ratio of the two laws."""
    ratios = [1.0]
    for token, draft, target in zip(tokens, draft_laws, target_laws, strict=False):
        ratios.append(min(1.0, ratios[-1] * target[token] / draft[token]))
    return ratios


def _excess(scale: float, target: Law, draft: Law) -> float:
    return sum(max(scale * t - d, 0.0) for t, d in zip(target, draft, strict=True))


def _residual(scale: float, target: Law, draft: Law) -> list[float]:
    """Return the normalised part of the scaled target law that the draft's does not cover."""
    left = [max(scale * t - d, 0.0) for t, d in zip(target, draft, strict=True)]
    total = sum(left)
    return [chance / total for chance in left] if total > 0.0 else list(target)
