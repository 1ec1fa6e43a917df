"""What is asked of a round's logits before any row is walked, so that a device is awaited once.

A walk asks one node after another. Where answers have a long way, as from a GPU, every node that
the walk could come to is asked at once and the walk finds its answers here. That needs questions
that do not depend on the tokens before them: no penalties, no grammar.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from torch import Tensor

from model.sampler import Ask, Ranked


class Questions(NamedTuple):
    """What a round may want to know of its logits; each to be gone through once, or not at all."""

    asks: Iterable[Ask]
    """For tokens, at nodes that may never be reached."""
    curious: Iterable[int] = ()
    """Rows of logits whose best tokens are wanted."""
    best_count: int = 0
    """How many of them."""


@dataclass(frozen=True, slots=True)
class Foreseen:
    """What is known of a round's logits, by their row."""

    broken: frozenset[int]
    """Rows that are no numbers."""
    tokens: Mapping[int, int] = field(default_factory=dict[int, int])
    """The seeded target's; a row that is missing must be asked later."""
    best: Mapping[int, Ranked] = field(default_factory=dict[int, Ranked])


class Foresee(Protocol):
    """Answer what costs little to answer at once; which rows are no numbers in any case."""

    def __call__(self, logits: Tensor, questions: Questions, /) -> Foreseen: ...


def broken_alone(logits: Tensor, questions: Questions) -> Foreseen:
    """Answer nothing beforehand: where answers are near, asking for every node is a waste."""
    # A node's hidden state is a factor of all its logits: where it is broken, so is every one.
    return Foreseen(frozenset((~logits[:, 0].isfinite()).nonzero()[:, 0].tolist()))
