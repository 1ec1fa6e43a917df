"""How many replicas there should be, from how long a request would wait."""

from collections.abc import Collection
from math import ceil

GROWTH_MAX = 2.0
"""Times as many replicas at most, at once: waits lag behind what was just started."""
IDLE_SHARE = 0.25
"""The share of the wait that is aimed at; below it a replica is one too many."""


def replicas_for(
    waits_s: Collection[float], current: int, target_s: float, at_least: int, at_most: int
) -> int:
    """Return the number of replicas for the expected waits of those that run.

    The queue of all is shared by as many as bring the mean wait to `target_s`. Replicas that start
    have no wait yet, and count as empty. One leaves at a time, where even without it the wait would
    be far below.
    """
    if not waits_s or current < 1:
        return min(max(current, at_least), at_most)
    total_s = sum(waits_s)
    wanted = ceil(total_s / target_s) if target_s else current
    if wanted > current:
        wanted = min(wanted, ceil(GROWTH_MAX * current))
    elif current > 1 and total_s / (current - 1) < IDLE_SHARE * target_s:
        wanted = current - 1
    else:
        wanted = current
    return min(max(wanted, at_least), at_most)
