"""The distribution that the sampling rule chooses from, to which what was chosen is compared."""

from collections.abc import Sequence

from draftwerk.speculative.parameters.elementary import exp
from draftwerk.speculative.sampling import Sampling, choose, truncated


def probabilities(scores: Sequence[float], sampling: Sampling) -> dict[int, float]:
    """Return the distribution that `choose` samples from, by token."""
    if sampling.temperature == 0.0:
        return {choose(scores, 0, sampling): 1.0}
    ranked = truncated(scores, sampling)
    weights = {token: exp(score - ranked[0][1]) for token, score in ranked}
    total = sum(weights.values())
    return {token: weight / total for token, weight in weights.items()}
