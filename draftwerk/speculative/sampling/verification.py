"""Which rule verifies drafts: keyed, or one of the classical rules for drafts drawn from a
distribution.

The classical rules draw drafts, uniforms and the last token from a noise stream of their own, new
in
every round and deterministic per seed. The distribution is exact; the text depends on what was
drafted.
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import Literal, NamedTuple

from draftwerk.speculative.sampling.gumbel import philox
from draftwerk.speculative.sampling.params import Sampling
from draftwerk.speculative.sampling.rejection import (
    Distribution,
    block_distribution,
    block_odds,
    draw,
    ratio_distribution,
    ratio_odds,
)

Verify = Literal["keyed", "ratio", "block"]
DISTRIBUTION_MAX = 64
"""Best tokens that a draft model draws from where its draws are verified by their probabilities."""


class UniformUse(IntEnum):
    """What a uniform number decides."""

    DRAFT, ACCEPTS, LAST, OUTSIDE = range(4)


def uniform_of(sampling: Sampling, stop: int, depth: int, use: UniformUse) -> float:
    """Return a number in (0, 1) for one decision of the round that begins with `stop` tokens.

    Every round commits a token, so no number serves twice: block verification looks at the whole
    draft, and one that saw an old number again would be biased. `stop` is above 0, which keeps
    this stream apart from the sampling rule's.
    """
    word = philox((depth, 0, sampling.branch, stop), sampling.seed)[use]
    return (word + 0.5) * 2.0**-32


class ChainOutcome(NamedTuple):
    """How many drafted tokens stand, and the distribution of the next among the last node's
    tokens."""

    accepted: int
    distribution: list[float]
    """Empty if the whole draft stands: the target's own distribution is next."""


def verify_chain(
    rule: Verify,
    tokens: Sequence[int],
    draft_distributions: Sequence[Distribution],
    target_distributions: Sequence[Distribution],
    uniform: float,
) -> ChainOutcome:
    """Verify a chain; distributions are by outcome, the drafted outcome of each depth being
    `tokens`.

    `target_distributions` may end where `draft_distributions` do.
    """
    # The distribution after the whole draft decides nothing.
    targets = [*target_distributions[: len(tokens)], (1.0,)]
    if rule == "ratio":
        accepted = draw(ratio_odds(tokens, draft_distributions, targets), uniform)
        distribution = ratio_distribution(accepted, draft_distributions, targets)
    else:
        accepted = draw(block_odds(tokens, draft_distributions, targets), uniform)
        distribution = block_distribution(accepted, tokens, draft_distributions, targets)
    return ChainOutcome(accepted, [] if accepted == len(tokens) else distribution)
