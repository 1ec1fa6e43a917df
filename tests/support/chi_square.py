"""Pearson's test, by its approximation that needs no tables."""

from collections.abc import Hashable, Iterable, Mapping
from math import sqrt
from statistics import NormalDist
from typing import TypeVar

Outcome = TypeVar("Outcome", bound=Hashable)

EXPECTED_MIN = 5.0
"""Outcomes expected less often than this count as one."""


def p_value(counts: Mapping[Outcome, int], distribution: Mapping[Outcome, float]) -> float:
    """Return how likely counts so far from the distribution are, by Wilson and Hilferty (1931).

    What the distribution does not name is one outcome more, with the chance that is left. Something
    that cannot be has a chance of 0.
    """
    total = sum(counts.values())
    named = sum(counts.get(outcome, 0) for outcome in distribution)
    cells = [(total * chance, counts.get(outcome, 0)) for outcome, chance in distribution.items()]
    cells.append((total * max(0.0, 1.0 - sum(distribution.values())), total - named))
    kept = [cell for cell in cells if cell[0] >= EXPECTED_MIN]
    rare = [cell for cell in cells if cell[0] < EXPECTED_MIN]
    kept.append((sum(want for want, _ in rare), sum(got for _, got in rare)))
    if kept[-1][0] < EXPECTED_MIN and len(kept) > 1:
        (want, got), (more, seen) = kept.pop(), kept.pop()
        if want < 1e-9 and got:
            return 0.0
        kept.append((want + more, got + seen))
    if len(kept) < 2:
        return 1.0
    statistic = sum((got - want) ** 2 / want for want, got in kept)
    freedom = len(kept) - 1
    spread = 2 / (9 * freedom)
    return 1.0 - NormalDist().cdf(((statistic / freedom) ** (1 / 3) - 1 + spread) / sqrt(spread))


def least(p_values: Iterable[float]) -> float:
    """Return the smallest p-value, times how many there are (Bonferroni)."""
    found = list(p_values)
    return min(1.0, min(found) * len(found))
