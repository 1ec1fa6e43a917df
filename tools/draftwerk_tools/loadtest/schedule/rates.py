"""A rate over time, and arrivals drawn from it."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from random import Random


@dataclass(frozen=True, slots=True)
class RateProfile:
    """Straight lines between (seconds, requests per second) points; the last rate holds on."""

    points: tuple[tuple[float, float], ...]

    def __post_init__(self) -> None:
        times = [at for at, _ in self.points]
        if not times or times[0] != 0 or times != sorted(set(times)):
            raise ValueError("a rate profile starts at 0 s and its times increase")
        if any(rate < 0 for _, rate in self.points) or not any(rate for _, rate in self.points):
            raise ValueError("rates are not negative and not all zero")

    def time_of(self, arrivals: float) -> float:
        """Return when that many arrivals are expected to have come, in seconds; inf if never."""
        for (start, low), (end, high) in pairwise(self.points):
            within = (end - start) * (low + high) / 2
            if arrivals <= within:
                return start + _into_segment(arrivals, low, (high - low) / (end - start))
            arrivals -= within
        start, rate = self.points[-1]
        return start + arrivals / rate if rate else math.inf


def _into_segment(area: float, rate: float, slope: float) -> float:
    """Solve rate·t + slope·t²/2 = area, in the form that stays exact as the slope goes to 0."""
    root = math.sqrt(max(0.0, rate * rate + 2 * slope * area))
    return 2 * area / (rate + root) if rate + root else 0.0


def parse_rate(text: str, duration_s: float | None = None) -> RateProfile:
    """Read `5`, a ramp `1..20` over the duration, or points `0:1,60:20,120:5`."""
    if ":" in text:
        pairs = (point.split(":") for point in text.split(","))
        return RateProfile(tuple((float(at), float(rate)) for at, rate in pairs))
    if ".." not in text:
        return RateProfile(((0.0, float(text)),))
    low, high = text.split("..")
    if not duration_s:
        raise ValueError("a ramp needs --duration-s")
    return RateProfile(((0.0, float(low)), (duration_s, float(high))))


def arrivals(profile: RateProfile, burstiness: float, rng: Random) -> Iterator[float]:
    """Yield arrival times in seconds without end, or until the profile's rate stays 0.

    Gaps are gamma with shape `burstiness`: 1 is Poisson, less comes in bursts, inf is a metronome.
    They are drawn for a rate of 1 and then stretched by the profile, so a ramp keeps its character.
    """
    expected = 0.0
    while True:
        expected += 1.0 if math.isinf(burstiness) else rng.gammavariate(burstiness, 1 / burstiness)
        at_s = profile.time_of(expected)
        if math.isinf(at_s):
            return
        yield at_s
