"""Latency histograms that the API fills."""

from dataclasses import dataclass, field

from draftwerk.actors.monitoring.histogram import Histogram

LATENCY_S = (
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0,
)  # fmt: skip
TOKEN_S = (
    0.0005, 0.001, 0.002, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5, 1.0,
    5.0,
)  # fmt: skip


@dataclass(slots=True)
class Histograms:
    """All times in seconds."""

    queue: Histogram = field(default_factory=lambda: Histogram(LATENCY_S))
    first_token: Histogram = field(default_factory=lambda: Histogram(LATENCY_S))
    between_tokens: Histogram = field(default_factory=lambda: Histogram(TOKEN_S))
    per_token: Histogram = field(default_factory=lambda: Histogram(TOKEN_S))
    whole: Histogram = field(default_factory=lambda: Histogram(LATENCY_S))
    loop_lag: Histogram = field(default_factory=lambda: Histogram(TOKEN_S))
