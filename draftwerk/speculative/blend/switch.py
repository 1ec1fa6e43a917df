"""Whether reused segments are served: measured again and again against what was certified.

    on  --mean KL or top-1 past the bound-->  off
    off --both well within it--------------->  on

Between the two nothing changes, so it does not swing. After a change it is measured anew.
"""

from collections import deque
from dataclasses import dataclass, field
from math import sqrt
from statistics import fmean, pstdev
from typing import NamedTuple

WINDOW = 64
"""The newest measurements, which a decision looks at."""
SAMPLES_MIN = 16
"""Measurements before any decision."""
MARGIN = 2.0
"""Standard errors by which the mean must be past the bound: the bound was certified over many."""
WITHIN = 0.5
"""Of the way to the bound, where it is switched on again."""


class BlendBound(NamedTuple):
    """What a certificate allows."""

    kl_max: float
    """Mean KL(exact || blended), in nats."""
    top1_min: float
    """Share of places where the best token is the exact one's."""


class BlendMeasure(NamedTuple):
    """One blended prompt against the exact one."""

    kl: float
    same: bool
    """Whether the best next token is."""


@dataclass(slots=True)
class BlendSwitch:
    """Off or on; no clock, no randomness."""

    bound: BlendBound
    is_on: bool = True
    window: deque[BlendMeasure] = field(default_factory=lambda: deque(maxlen=WINDOW))
    """Since the last change."""

    @property
    def kl(self) -> float:
        """Mean KL of the window; 0 without a measurement."""
        return fmean(each.kl for each in self.window) if self.window else 0.0

    @property
    def top1(self) -> float:
        """Share of the window whose best token is the exact one's; 1 without a measurement."""
        return fmean(each.same for each in self.window) if self.window else 1.0

    def learn(self, measured: BlendMeasure) -> bool:
        """Take in a measurement; returns whether it switched."""
        self.window.append(measured)
        if len(self.window) < SAMPLES_MIN:
            return False
        if not (self._is_past() if self.is_on else self._is_within()):
            return False
        self.is_on = not self.is_on
        self.window.clear()
        return True

    def check(self) -> None:
        """Assert that a decision that is due was made."""
        assert 0.0 <= self.top1 <= 1.0
        if len(self.window) >= SAMPLES_MIN:
            assert not (self._is_past() if self.is_on else self._is_within())

    def _is_past(self) -> bool:
        kl = self.kl - MARGIN * _error([each.kl for each in self.window])
        top1 = self.top1 + MARGIN * _error([float(each.same) for each in self.window])
        return kl > self.bound.kl_max or top1 < self.bound.top1_min

    def _is_within(self) -> bool:
        wrong_max = 1.0 - self.bound.top1_min
        return self.kl <= WITHIN * self.bound.kl_max and 1.0 - self.top1 <= WITHIN * wrong_max


def _error(values: list[float]) -> float:
    """Return the standard error of a mean."""
    return pstdev(values) / sqrt(len(values))
