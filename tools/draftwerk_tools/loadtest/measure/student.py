"""Student's t: how far the mean of a few values may lie from the truth."""

import math
from collections.abc import Iterable, Sequence
from statistics import fmean, stdev, variance

from msgspec import Struct


class Spread(Struct, frozen=True):
    """A standard deviation, and from how many free values it was taken."""

    deviation: float
    freedom: int


def pooled(groups: Iterable[Sequence[float]]) -> Spread:
    """Return the deviation within groups whose means may differ and whose noise is alike."""
    many = [values for values in groups if len(values) > 1]
    freedom = sum(len(values) - 1 for values in many)
    squares = sum(variance(values) * (len(values) - 1) for values in many)
    return Spread(math.sqrt(squares / freedom) if freedom else 0.0, freedom)


def mean_interval(values: Sequence[float], spread: Spread, doubt: float) -> tuple[float, float]:
    """Return the interval that misses the true mean with probability `doubt`.

    The values are taken as independent and normal about the truth, with the deviation of the
    `spread`; a group that spreads wider than that keeps its own.
    """
    middle = fmean(values)
    own = stdev(values) if len(values) > 1 else 0.0
    deviation = max(spread.deviation, own)
    half = t_quantile(1 - doubt / 2, spread.freedom) * deviation / math.sqrt(len(values))
    return middle - half, middle + half


def t_quantile(share: float, freedom: int) -> float:
    """Return the value below which this share of the distribution lies; `share` from 1/2 up."""
    low, high = 0.0, 1.0
    while t_share(high, freedom) < share:
        high *= 2
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if t_share(middle, freedom) < share else (low, middle)
    return high


def t_share(value: float, freedom: int) -> float:
    """Return the share of the distribution below a value that is not negative.

    The finite sums of Abramowitz and Stegun 26.7.3 and 26.7.4, in the angle atan(value / √freedom).
    """
    angle = math.atan(value / math.sqrt(freedom))
    odd = freedom % 2
    cosine = math.cos(angle)
    term = cosine if odd else 1.0
    total = term if freedom > 1 else 0.0
    for step in range(3 if odd else 2, freedom - 1, 2):
        term *= cosine * cosine * (step - 1) / step
        total += term
    inside = math.sin(angle) * total
    return 0.5 + ((angle + inside) / math.pi if odd else inside / 2)
