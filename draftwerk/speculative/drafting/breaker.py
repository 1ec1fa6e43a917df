"""A circuit breaker: stops drafting where drafts do not pay, and probes again now and then."""

from dataclasses import dataclass

PATIENCE = 8
"""Rounds without a guess worth verifying before the breaker opens."""
PERIOD_MIN, PERIOD_MAX = 2, 32
"""Rounds let pass between two probes; doubles with each in vain."""
CONFIRMATIONS = 2
"""Probes in a row that must pay before it closes: text that collapses acceptance also lures."""


@dataclass(slots=True)
class Breaker:
    """One sequence's, or the draft model's."""

    period: int = 0
    """0 while closed."""
    _skip: int = 0
    _vain: int = 0
    _paid: int = 0

    @property
    def pays(self) -> bool:
        """Whether the latest guesses were worth verifying."""
        return self._paid > 0

    @property
    def is_open(self) -> bool:
        """Whether guesses have not been worth verifying for long."""
        return self.period > 0 and not self._paid

    def allows(self) -> bool:
        """Return whether the sequence's draft sources may run; call it once a round."""
        if self._skip:
            self._skip -= 1
            return False
        return True

    def learn(self, paid: bool) -> None:
        """Record whether a round's drafts were worth verifying."""
        if paid:
            self._vain = self._skip = 0
            self._paid += 1
            if self._paid >= CONFIRMATIONS:
                self.period = 0
            return
        self._paid = 0
        self._vain += 1
        if self.period or self._vain >= PATIENCE:
            self.period = min(max(2 * self.period, PERIOD_MIN), PERIOD_MAX)
            self._skip = self.period
