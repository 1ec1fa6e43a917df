"""Student's t: how far the mean of a few values may lie from the truth."""

import math
from collections.abc import Sequence
from statistics import fmean, stdev


def mean_interval(values: Sequence[float], doubt: float) -> tuple[float, float]:
    """Return the interval that misses the true mean with probability `doubt`; two values at least.

    It supposes that the values are independent and normal about the truth.
    """
    middle = fmean(values)
    half = t_quantile(1 - doubt / 2, len(values) - 1) * stdev(values) / math.sqrt(len(values))
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
