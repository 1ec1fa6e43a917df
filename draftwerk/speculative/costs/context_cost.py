"""The cost of a step's context: attention's arithmetic and its reading, each times a factor.

The factors are a ridge regression towards 1, the roofline's estimate. They are learnt from how the
times of steps of one size differ as their contexts do (a "within" estimate, of fixed effects), so
that nothing must be known of what such a step costs without context. Errors count relatively: a
step of 500 ms teaches no more than one of 5 ms.
"""

from draftwerk.speculative.costs.roofline import Roofline
from draftwerk.speculative.costs.work import NO_LOAD, StepLoad

PRIOR_WEIGHT = 0.01
"""The weight of the roofline's factors, in squared relative errors: an error of 10 % counts as much
as a factor of 2."""
FACTOR_MIN, FACTOR_MAX = 0.05, 20.0
Features = tuple[float, float]
"""Milliseconds of attention's arithmetic and of its reading, by the roofline."""


class ContextCost:
    """Factors on the roofline's attention, learnt from deviations within steps of one size."""

    def __init__(self, roofline: Roofline | None) -> None:
        """Without a roofline, contexts cost nothing."""
        self._roofline = roofline
        self._squares = [0.0, 0.0, 0.0]
        """Sums of f0 f0, f0 f1 and f1 f1 over deviations of features."""
        self._products = [0.0, 0.0]
        """Sums of f0 ms and f1 ms."""
        self._factors: Features = (1.0, 1.0)

    @property
    def factors(self) -> Features:
        """The times of attention's arithmetic and its reading, in the roofline's times."""
        return self._factors

    def features(self, load: StepLoad) -> Features:
        """Return the roofline's times of a load's attention."""
        if self._roofline is None:
            return 0.0, 0.0
        return self._roofline.attention_ms(load), self._roofline.kv_ms(load)

    def ms(self, features: Features) -> float:
        """Return the milliseconds that attention takes."""
        return self._factors[0] * features[0] + self._factors[1] * features[1]

    def learn(self, deviation: Features, ms: float, weight: float, scale_ms: float) -> None:
        """Take in how a step differed from others of its size, which take about `scale_ms`."""
        weight /= scale_ms * scale_ms
        first, second = deviation
        self._squares[0] += weight * first * first
        self._squares[1] += weight * first * second
        self._squares[2] += weight * second * second
        self._products[0] += weight * first * ms
        self._products[1] += weight * second * ms

    def fade(self, share: float, pace: float) -> None:
        """Keep a share of what was learnt; every step took `pace` times what it had."""
        self._squares = [share * square for square in self._squares]
        self._products = [share * pace * product for product in self._products]

    def solve(self) -> None:
        """Set the factors to what fits best, neither below zero nor beyond reason."""
        a, b, d = self._squares
        a, d = a + PRIOR_WEIGHT, d + PRIOR_WEIGHT
        p, q = (product + PRIOR_WEIGHT for product in self._products)
        determinant = a * d - b * b
        first, second = (d * p - b * q) / determinant, (a * q - b * p) / determinant
        if first < FACTOR_MIN:
            first, second = FACTOR_MIN, (q - b * FACTOR_MIN) / d
        elif second < FACTOR_MIN:
            first, second = (p - b * FACTOR_MIN) / a, FACTOR_MIN
        self._factors = _bounded(first), _bounded(second)

    def check(self) -> None:
        """Assert that the factors are within reason."""
        assert all(FACTOR_MIN <= factor <= FACTOR_MAX for factor in self._factors)
        assert self.ms(self.features(NO_LOAD)) == 0.0


def _bounded(factor: float) -> float:
    return min(max(factor, FACTOR_MIN), FACTOR_MAX)
