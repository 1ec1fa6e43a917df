"""Looking for the highest load that holds: doubling, or halving where the first one does not hold,
then halving the gap in proportion."""

import math
from collections.abc import Sequence

from msgspec import Struct

LOW_SHARE = 16
"""Rates below the first one by more than this factor are not tried."""


class Trial(Struct, frozen=True):
    load: float
    holds: bool


class Bounds(Struct, frozen=True):
    """Where to look. `whole` loads are users; `tolerance` is the gap left over, in proportion."""

    low: float
    """The first load; if it does not hold, smaller ones are tried."""
    high: float
    tolerance: float
    whole: bool


def highest(trials: Sequence[Trial]) -> float | None:
    """Return the highest load that held below every one that did not."""
    broke = _lowest_broken(trials)
    return max((t.load for t in trials if t.holds and t.load < broke), default=None)


def next_load(trials: Sequence[Trial], bounds: Bounds) -> float | None:
    """Return the load to try next, or None when the answer is known well enough."""
    if not trials:
        return bounds.low
    held, broke = highest(trials), _lowest_broken(trials)
    if held is None:
        return _below(broke, bounds)
    if math.isinf(broke):
        return None if held >= bounds.high else min(bounds.high, held * 2)
    return _between(held, broke, bounds)


def _lowest_broken(trials: Sequence[Trial]) -> float:
    return min((trial.load for trial in trials if not trial.holds), default=math.inf)


def _below(broke: float, bounds: Bounds) -> float | None:
    """Return half of what does not hold, but neither less than a user nor many times less."""
    least = 1.0 if bounds.whole else bounds.low / LOW_SHARE
    if broke <= least:
        return None
    return max(least, float(broke // 2) if bounds.whole else broke / 2)


def _between(held: float, broke: float, bounds: Bounds) -> float | None:
    if broke / held <= 1 + bounds.tolerance:
        return None
    middle = math.sqrt(held * broke)
    if not bounds.whole:
        return middle
    whole = min(max(round(middle), math.floor(held) + 1), math.ceil(broke) - 1)
    return float(whole) if held < whole < broke else None
