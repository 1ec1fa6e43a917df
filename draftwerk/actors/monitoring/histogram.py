"""Histograms: a bisection and an addition per observation."""

from bisect import bisect_left
from dataclasses import dataclass, field

WAITS_S = (
    0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0,
)  # fmt: skip
"""Buckets for how long messages wait."""


@dataclass(slots=True)
class Histogram:
    """Counts per bucket, each bucket up to and with its bound; the last one has no bound."""

    bounds: tuple[float, ...]
    counts: list[int] = field(default_factory=list[int])
    total: float = 0.0

    def __post_init__(self) -> None:
        self.counts = self.counts or [0] * (len(self.bounds) + 1)

    def observe(self, value: float, weight: int = 1) -> None:
        """Add `weight` observations of one value."""
        self.counts[bisect_left(self.bounds, value)] += weight
        self.total += value * weight

    def copy(self) -> "Histogram":
        """Return the observations so far."""
        return Histogram(self.bounds, list(self.counts), self.total)

    def cumulative(self) -> list[tuple[str, float]]:
        """Return (upper bound, observations up to it) pairs, the form of Prometheus."""
        names = [*map(str, self.bounds), "+Inf"]
        below, pairs = 0, list[tuple[str, float]]()
        for name, count in zip(names, self.counts, strict=True):
            below += count
            pairs.append((name, below))
        return pairs
