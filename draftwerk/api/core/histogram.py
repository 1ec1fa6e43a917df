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
TOKEN_COUNTS = tuple(float(one * 10**power) for power in range(6) for one in (1, 2, 5))
"""vLLM's: 1, 2, 5, 10, …, 500 000."""


@dataclass(slots=True)
class Histograms:
    """Of times in seconds, and of counts of tokens."""

    queue: Histogram = field(default_factory=lambda: Histogram(LATENCY_S))
    first_token: Histogram = field(default_factory=lambda: Histogram(LATENCY_S))
    between_tokens: Histogram = field(default_factory=lambda: Histogram(TOKEN_S))
    per_token: Histogram = field(default_factory=lambda: Histogram(TOKEN_S))
    whole: Histogram = field(default_factory=lambda: Histogram(LATENCY_S))
    prefill: Histogram = field(default_factory=lambda: Histogram(LATENCY_S))
    decode: Histogram = field(default_factory=lambda: Histogram(LATENCY_S))
    prompt_tokens: Histogram = field(default_factory=lambda: Histogram(TOKEN_COUNTS))
    generation_tokens: Histogram = field(default_factory=lambda: Histogram(TOKEN_COUNTS))
    longest_generation: Histogram = field(default_factory=lambda: Histogram(TOKEN_COUNTS))
    """Tokens of the longest choice of each request."""
    loop_lag: Histogram = field(default_factory=lambda: Histogram(TOKEN_S))
