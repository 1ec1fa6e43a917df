"""The requests that ran as the actors failed, any of which may be the cause."""

from collections.abc import Iterable
from typing import NamedTuple

from draftwerk.speculative.sequence import Sequence


class ComputedCount(NamedTuple):
    """How much was computed of a request; what is greater is farther."""

    tokens: int
    """The tokens of all its choices; of a group the prompt's alone."""
    steps: int = 0
    """Steps of a sequence that is taken on by more than its tokens."""


def computed_counts(running: Iterable[Sequence]) -> dict[str, ComputedCount]:
    """Return how much was computed of each request that runs, by request id."""
    # Waiting ones have computed nothing in the step that failed, and cannot have failed it.
    counts: dict[str, ComputedCount] = {}
    for sequence in running:
        tokens, steps = counts.get(sequence.request.request_id, ComputedCount(0))
        counts[sequence.request.request_id] = ComputedCount(
            tokens + sequence.computed, steps + sequence.tally.depth
        )
    return counts
