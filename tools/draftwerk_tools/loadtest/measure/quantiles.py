"""Percentiles, marked where there are too few values for them."""

from collections.abc import Iterable

from msgspec import Struct

LEVELS = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p99.9": 0.999}
BEYOND_MIN = 5


class Quantiles(Struct, frozen=True):
    """`thin` names the percentiles with fewer than five values beyond them: hearsay."""

    n: int
    mean: float
    min: float
    max: float
    at: dict[str, float]
    thin: list[str]


def quantile(ordered: list[float], level: float) -> float:
    """Interpolate between the two nearest of the sorted values."""
    place = level * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def quantiles(values: Iterable[float | None], scale: float = 1.0) -> Quantiles | None:
    """Summarise the values that exist, times `scale`; None if there are none."""
    ordered = sorted(value * scale for value in values if value is not None)
    if not ordered:
        return None
    count = len(ordered)
    return Quantiles(
        n=count,
        mean=_rounded(sum(ordered) / count),
        min=_rounded(ordered[0]),
        max=_rounded(ordered[-1]),
        at={name: _rounded(quantile(ordered, level)) for name, level in LEVELS.items()},
        # The epsilon keeps 500 values enough for p99 in spite of 1 - 0.99 not being 0.01.
        thin=[name for name, lv in LEVELS.items() if count * (1 - lv) < BEYOND_MIN - 1e-6],
    )


def _rounded(value: float) -> float:
    return round(value, 4)
