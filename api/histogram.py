"""Latency histograms that the door fills: a bisection and an addition per observation."""

from bisect import bisect_left
from dataclasses import dataclass, field

LATENCY_S = (
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0,
)  # fmt: skip
TOKEN_S = (
    0.0005, 0.001, 0.002, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5, 1.0,
    5.0,
)  # fmt: skip


@dataclass(slots=True)
class Histogram:
    """Counts per bucket, each bucket up to and with its bound; the last one has no bound."""

    bounds: tuple[float, ...]
    counts: list[int] = field(init=False)
    total: float = 0.0

    def __post_init__(self) -> None:
        self.counts = [0] * (len(self.bounds) + 1)

    def observe(self, value: float, weight: int = 1) -> None:
        """Add `weight` observations of one value."""
        self.counts[bisect_left(self.bounds, value)] += weight
        self.total += value * weight

    def cumulative(self) -> list[tuple[str, float]]:
        """Return (upper bound, observations up to it) pairs, as Prometheus wants them."""
        names = [*map(str, self.bounds), "+Inf"]
        below, pairs = 0, list[tuple[str, float]]()
        for name, count in zip(names, self.counts, strict=True):
            below += count
            pairs.append((name, below))
        return pairs


@dataclass(slots=True)
class Histograms:
    """All times in seconds."""

    queue: Histogram = field(default_factory=lambda: Histogram(LATENCY_S))
    first_token: Histogram = field(default_factory=lambda: Histogram(LATENCY_S))
    between_tokens: Histogram = field(default_factory=lambda: Histogram(TOKEN_S))
    per_token: Histogram = field(default_factory=lambda: Histogram(TOKEN_S))
    whole: Histogram = field(default_factory=lambda: Histogram(LATENCY_S))
    loop_lag: Histogram = field(default_factory=lambda: Histogram(TOKEN_S))
