"""The knee of a latency-throughput curve."""

from collections.abc import Sequence

from msgspec import Struct


class Point(Struct, frozen=True):
    """A load with what it gave: tokens per second, and the median end-to-end latency in ms."""

    load: float
    throughput: float
    latency: float


def still_rises(rates: Sequence[float], gain: float) -> bool:
    """Return whether the last of the rates is above all before it by a fraction."""
    return len(rates) < 2 or rates[-1] >= (1.0 + gain) * max(rates[:-1])


def knee(points: Sequence[Point]) -> Point | None:
    """Return the point with the most throughput per latency, Kleinrock's power; None below three.

    Before the knee more load buys more throughput than it costs latency, after it less.
    """
    usable = [point for point in points if point.latency > 0]
    if len(usable) < 3:
        return None
    return max(usable, key=lambda point: point.throughput / point.latency)
