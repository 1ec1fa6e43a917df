"""Which rule verifies drafts: keyed, or one of the classical rules for drafts drawn from a law.

The classical rules draw drafts, coins and the last token from a noise stream of their own, new in
every round and deterministic per seed. The law is exact; the text depends on what was drafted.
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import Literal, NamedTuple

from draftwerk.speculative.sampling.gumbel import philox
from draftwerk.speculative.sampling.params import Sampling
from draftwerk.speculative.sampling.rejection import (
    Law,
    block_law,
    block_odds,
    draw,
    ratio_law,
    ratio_odds,
)

Verify = Literal["keyed", "ratio", "block"]
LAW_MAX = 64
"""Best tokens that a draft model draws from where its draws are verified by their probabilities."""


class Coin(IntEnum):
    """What a uniform number decides."""

    DRAFT, ACCEPTS, LAST, OUTSIDE = range(4)


def coin(sampling: Sampling, stop: int, depth: int, use: Coin) -> float:
    """Return a number in (0, 1) for one decision of the round that begins with `stop` tokens.

    Every round commits a token, so no number serves twice: block verification looks at the whole
    draft, and one that saw an old number again would be biased. `stop` is above 0, which keeps
    this stream apart from the sampling rule's.
    """
    word = philox((depth, 0, sampling.branch, stop), sampling.seed)[use]
    return (word + 0.5) * 2.0**-32


class Outcome(NamedTuple):
    """How many drafted tokens stand, and the law of the next among the last node's tokens."""

    accepted: int
    law: list[float]
    """Empty if the whole draft stands: the target's own law is next."""


def judge(
    rule: Verify,
    tokens: Sequence[int],
    draft_laws: Sequence[Law],
    target_laws: Sequence[Law],
    toss: float,
) -> Outcome:
    """Verify a chain; laws are by outcome, the drafted outcome of each depth being `tokens`.

    `target_laws` may end where `draft_laws` do.
    """
    # The law after the whole draft decides nothing.
    targets = [*target_laws[: len(tokens)], (1.0,)]
    if rule == "ratio":
        accepted = draw(ratio_odds(tokens, draft_laws, targets), toss)
        law = ratio_law(accepted, draft_laws, targets)
    else:
        accepted = draw(block_odds(tokens, draft_laws, targets), toss)
        law = block_law(accepted, tokens, draft_laws, targets)
    return Outcome(accepted, [] if accepted == len(tokens) else law)
