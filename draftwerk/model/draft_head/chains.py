"""Whole chains of guesses at once, where a device answers them without the host between."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from torch import Tensor

from draftwerk.model.reference.sampler import SamplingRequest

LENGTH_MAX = 8
"""Most tokens of a chain."""


class Wanted(NamedTuple):
    """A chain that a row wants."""

    request: SamplingRequest
    """For its first token, which goes into the slot of its position; the distribution holds to the
    end."""
    blocks: tuple[int, ...]
    """The block table: covers the chain."""
    length: int


class ChainDrafter(Protocol):
    """A draft model that guesses on by itself."""

    def serves(self, wanted: Wanted) -> bool:
        """Whether the chain can be had at once."""
        ...

    def begin(self, logits: Tensor, wanted: Sequence[Wanted]) -> Callable[[], list[list[int]]]:
        """Queue the chains that follow these logits; return what awaits their tokens.

        A chain ends before a token whose logits are not finite.
        """
        ...
