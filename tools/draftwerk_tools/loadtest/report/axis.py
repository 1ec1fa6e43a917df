"""Axes: scales from values to pixels, round ticks, short labels."""

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scale:
    """Maps values between `low` and `high` to pixels between `start` and `stop`."""

    low: float
    high: float
    start: float
    stop: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high, at = self.low, self.high, min(max(value, self.low), self.high)
        if self.log:
            low, high, at = math.log(low), math.log(high), math.log(at)
        share = (at - low) / (high - low) if high > low else 0.5
        return round(self.start + share * (self.stop - self.start), 1)

    def ticks(self) -> list[float]:
        return log_ticks(self.low, self.high) if self.log else ticks(self.low, self.high)


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Return round values (steps of 1, 2 or 5 times a power of ten) within the range."""
    if high <= low:
        return [low]
    rough = (high - low) / about
    power = 10 ** math.floor(math.log10(rough))
    step = next(power * m for m in (1, 2, 5, 10) if power * m >= rough * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(n * step, 12) for n in range(first, last + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Return powers of ten within the range, with 2 and 5 between them if it is short."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1, 2, 5) if len(decades) <= 4 else (1,)
    values = (step * 10.0**decade for decade in decades for step in steps)
    return [value for value in values if low * 0.999 <= value <= high * 1.001]


def linear(low: float, high: float, start: float, stop: float) -> Scale:
    """Make a scale that ends at a round value above the data."""
    if high <= low:
        high = low + 1
    step = ticks(low, high)
    width = step[1] - step[0] if len(step) > 1 else high - low
    return Scale(low, math.ceil(high / width - 1e-9) * width, start, stop)


def logarithmic(low: float, high: float, start: float, stop: float) -> Scale:
    """Make a scale with some air at both ends."""
    low = max(low, 1e-9)
    return Scale(low / 1.15, max(high, low) * 1.15, start, stop, log=True)


def short(value: float) -> str:
    """Write a tick's value: 1.5k rather than 1500, no trailing zeros."""
    if abs(value) >= 1e6:
        return f"{value / 1e6:g}M"
    return f"{value / 1e3:g}k" if abs(value) >= 1e4 else f"{value:,g}"
