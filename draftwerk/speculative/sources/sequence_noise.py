"""The target's own noise at each position, by which draft sources rank their candidates.

Position and seed are known before the target runs, so a source with several candidates ranks them
as the target will: by log-probability plus noise (Daliri, Musco, Suresh, arXiv 2408.07978).
"""

from collections.abc import Sequence

from draftwerk.speculative.row_parts.feedback import LOSS_NATS
from draftwerk.speculative.sampling import Gumbels, Sampling, gumbels

SHARPNESS = 1.2
"""Sources spread their chances too widely: the noise lifts a token that they only half exclude, and
the target does not. So they rank with their log-probabilities times this. Of 1 to 1.5 it saved most
in replayed texts of temperature 1."""


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
