"""The cost of a step without context by its tokens: straight lines through points."""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise
from math import inf

CostPoint = tuple[float, float]
"""Tokens and milliseconds."""
SLOPE_PRIOR = 0.01
"""The share that a token adds to a step of one, as a share of it, while only one bucket is known.
"""


def with_prior(
    points: list[CostPoint], priors: Sequence[CostPoint], tokens_max: float = inf
) -> list[CostPoint]:
    """Return the points, and the scaled priors of buckets in which there is none.

    A bucket holds the sizes up to that of its prior, from that of the prior before. Priors are left
    out behind the first that a curve to `tokens_max` does not need.
    """
    if not points:
        return [*priors]
    scales = [(tokens, ms / _between(priors, tokens)) for tokens, ms in points]
    last = len(priors) - 1
    known = {min(bisect_left(priors, (tokens,)), last) for tokens, _ in points}
    found = [*points]
    needed = bisect_left(priors, (tokens_max,)) + 2
    for index, (edge, prior) in enumerate(priors[:needed]):
        if index not in known:
            found.append((edge, prior * _between(scales, edge)))
    found.sort()
    rising: list[CostPoint] = []
    highest = found[0][1]
    for tokens, ms in found:
        highest = max(highest, ms)
        rising.append((tokens, highest))
    return rising


def _between(points: Sequence[CostPoint], at: float) -> float:
    """Return the value at `at` of the line through the points, level outside of them."""
    index = bisect_left(points, (at,))
    if index == 0:
        return points[0][1]
    if index == len(points):
        return points[-1][1]
    (left, low), (right, high) = points[index - 1], points[index]
    return low + (high - low) * (at - left) / (right - left)


def drawn(points: list[CostPoint], tokens_max: int) -> list[float]:
    """Return the curve through the points, level before them and straight on after them."""
    if not points:
        points = [(1.0, 1.0)]
    points = points[: 1 + bisect_left(points, (tokens_max,))]
    first, last = points[0], points[-1]
    slope = (last[1] - first[1]) / (last[0] - first[0]) if len(points) > 1 else 0.0
    slope = max(slope, SLOPE_PRIOR * first[1] / (1.0 + SLOPE_PRIOR * first[0]))
    ends = [*points, (tokens_max + 1.0, last[1] + slope * (tokens_max + 1.0 - last[0]))]
    curve = [first[1]] * (int(first[0]) + 1)
    for (left, low), (right, high) in pairwise(ends):
        if right > left:
            rise = (high - low) / (right - left)
            curve += [low + rise * (n - left) for n in range(len(curve), int(right) + 1)]
    return curve
