"""The target's own noise at each position, by which draft sources rank their candidates.

Position and seed are known before the target runs, so a source with several candidates ranks them
as the target will: by log-probability plus noise (Daliri, Musco, Suresh, arXiv 2408.07978).
"""

from collections.abc import Callable, Sequence

from draftwerk.speculative.row_parts.feedback import LOSS_NATS
from draftwerk.speculative.sampling import MASK, MULTIPLIERS, ROUNDS, WEYL, Sampling, log

SHARPNESS = 1.2
"""Sources spread their chances too widely: the noise lifts a token that they only half exclude, and
the target does not. So they rank with their log-probabilities times this. Of 1 to 1.5 it saved most
in replayed texts of temperature 1."""


Gumbels = Callable[[int, int, int, Sequence[int]], list[float]]
"""(seed, branch, position, tokens) to the noise of each token; a model may bring a faster one."""


def gumbels(seed: int, branch: int, position: int, tokens: Sequence[int]) -> list[float]:
    """Return the noise of several tokens at one position: `gumbel` of each, unrolled for speed."""
    by_0, by_2 = MULTIPLIERS
    k0, k1 = seed & MASK, seed >> 32 & MASK
    # The same for all tokens, which differ in their counters.
    keys = [(k0 + n * WEYL[0] & MASK, k1 + n * WEYL[1] & MASK) for n in range(ROUNDS)]
    noise: list[float] = []
    for token in tokens:
        c0, c1, c2, c3 = token >> 2, position, branch, 0
        for key0, key1 in keys:
            product0, product2 = by_0 * c0, by_2 * c2
            c0, c2 = product2 >> 32 ^ c1 ^ key0, product0 >> 32 ^ c3 ^ key1
            c1, c3 = product2 & MASK, product0 & MASK
        noise.append(-log(-log(((c0, c1, c2, c3)[token & 3] + 0.5) * 2.0**-32)))
    return noise


class SequenceNoise:
    """One sequence's noise and temperature."""

    __slots__ = ("_gumbels", "branch", "sampled", "scale", "seed")

    def __init__(self, sampling: Sampling, noise: Gumbels | None = None) -> None:
        self.sampled = sampling.temperature > 0.0
        """Whether there is noise at all."""
        self.seed, self.branch = sampling.seed, sampling.branch
        self.scale = -LOSS_NATS * SHARPNESS / (sampling.temperature or 1.0)
        """The number that a loss adds to a token's score."""
        self._gumbels = noise or gumbels

    def of_tokens(self, position: int, tokens: Sequence[int]) -> list[float]:
        """Return what the noise adds to each token at one position."""
        if not self.sampled:
            return [0.0] * len(tokens)
        return self._gumbels(self.seed, self.branch, position, tokens)

    def ranked(
        self, position: int, tokens: Sequence[int], losses: Sequence[int]
    ) -> list[tuple[float, int]]:
        """Return (score, token), best first: the target chooses by the true scores."""
        scale = self.scale
        noise = self.of_tokens(position, tokens)
        found = [
            (scale * loss + extra, token)
            for token, loss, extra in zip(tokens, losses, noise, strict=True)
        ]
        found.sort(reverse=True)
        return found


GREEDY = SequenceNoise(Sampling(temperature=0.0))
