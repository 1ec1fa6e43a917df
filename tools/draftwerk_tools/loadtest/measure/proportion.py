"""How sure one can be of a share seen in n trials."""

import math

from msgspec import Struct

Z95 = 1.959964


class Proportion(Struct, frozen=True):
    """`met` of `n`, with the 95 % Wilson interval."""

    met: int
    n: int
    share: float
    low: float
    high: float


def wilson(met: int, n: int) -> Proportion:
    """Return the Wilson score interval; with no trials it is the whole range."""
    if n == 0:
        return Proportion(0, 0, 0.0, 0.0, 1.0)
    z, share = Z95, met / n
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return Proportion(met, n, share, max(0.0, middle - half), min(1.0, middle + half))
