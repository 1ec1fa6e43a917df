"""Two ways that were measured side by side, and how far chance may have moved what they differ by.

The mean of the middle four fifths: a few runs that something else slowed do not move it; a cost of
every fourth run does, which a median would not show. Tukey and McLaughlin, Sankhya A 25 (1963):
its error is that of the mean of values in which the outer ones are as far out as the last in the
middle.
"""

from collections.abc import Iterable
from math import exp, log, sqrt
from statistics import fmean, stdev
from typing import NamedTuple

from draftwerk_tools.loadtest.measure.student import t_quantile

CUT = 0.1
"""The share of values that is left out at each end."""
SURE = 0.975
"""Of Student's t, for an interval that holds the truth in 95 of 100 cases."""


class Uncertain(NamedTuple):
    """A value, and half of the interval about it."""

    value: float
    error: float

    def __str__(self) -> str:
        return f"{self.value:.3f} ±{self.error:.3f}"


def location(values: Iterable[float]) -> Uncertain:
    """Return about what values lie."""
    ordered = sorted(values)
    count, cut = len(ordered), int(CUT * len(ordered))
    middle = ordered[cut : count - cut]
    if len(middle) < 2:
        return Uncertain(fmean(ordered), float("inf"))
    drawn_in = [*[middle[0]] * cut, *middle, *[middle[-1]] * cut]
    deviation = stdev(drawn_in) * count / len(middle) / sqrt(count)
    return Uncertain(fmean(middle), t_quantile(SURE, len(middle) - 1) * deviation)


def ratio(pairs: Iterable[tuple[float, float]]) -> Uncertain:
    """Return how many times the second of each pair the first is."""
    found = location(log(first / second) for first, second in pairs)
    return Uncertain(exp(found.value), exp(found.value) * found.error)
