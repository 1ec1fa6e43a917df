"""Time of some work by the rows that it is done for, learnt from rounds: a straight line."""

MEMORY = 0.95
"""Weight of what was known before, at each measurement."""
SURPRISE_MAX = 3.0
"""Times what was expected: a core that does something else for a while teaches no more. Where so
many times as much was expected, it had, and what was known is forgotten."""


class RowCost:
    """ms(rows) = fixed_ms + row_ms * rows, by fading least squares; neither is below 0."""

    __slots__ = ("_mean", "_ms", "_products", "_squares", "_weight", "fixed_ms", "row_ms")

    def __init__(self, row_ms: float) -> None:
        """Expect so much of a row until something was measured."""
        self.fixed_ms, self.row_ms = 0.0, row_ms
        self._weight = self._mean = self._ms = self._squares = self._products = 0.0

    def ms(self, rows: int) -> float:
        """Return what some rows take together; nothing for none."""
        return self.fixed_ms + self.row_ms * rows if rows else 0.0

    def learn(self, rows: int, ms: float) -> None:
        """Take in that some rows took so long."""
        if not rows or ms <= 0.0:
            return
        expected = self.ms(rows)
        ms = min(ms, SURPRISE_MAX * expected)
        if SURPRISE_MAX * ms < expected:
            self._weight = self._squares = self._products = 0.0
        old = MEMORY * self._weight
        self._weight = old + 1.0
        row_step, ms_step = rows - self._mean, ms - self._ms
        self._mean += row_step / self._weight
        self._ms += ms_step / self._weight
        share = old / self._weight
        self._squares = MEMORY * self._squares + share * row_step * row_step
        self._products = MEMORY * self._products + share * row_step * ms_step
        self._fit()

    def check(self) -> None:
        """Assert that more rows never seem to take less."""
        assert self.fixed_ms >= 0.0 <= self.row_ms

    def _fit(self) -> None:
        """Draw the line; through 0 where it would begin below, or all counts of rows are alike."""
        through_zero = self._ms / self._mean
        if self._squares > 0.0:
            self.row_ms = min(max(self._products / self._squares, 0.0), through_zero)
        else:
            self.row_ms = through_zero
        self.fixed_ms = max(0.0, self._ms - self.row_ms * self._mean)


class AskingCost(RowCost):
    """The cost of asking sources: what a round of the proposer takes longer than one in which it
    rests.

    What was asked for in a round is read and learnt from in the next one, which counts as well.
    """

    __slots__ = ("_asked_before", "_owed_ms", "_resting_ms", "_rests")

    def __init__(self, row_ms: float) -> None:
        super().__init__(row_ms)
        self._resting_ms = self._owed_ms = 0.0
        self._rests = 0
        self._asked_before = False

    def learn_round(self, rows: int, ms: float) -> None:
        """Take in a round in which so many rows were asked, and that took so long in all."""
        if not rows and not self._asked_before:
            self._rests += 1
            pace = max(1.0 / self._rests, 1.0 - MEMORY)
            self._resting_ms += (ms - self._resting_ms) * pace
            return
        self._asked_before = rows > 0
        self._owed_ms += ms - self._resting_ms
        if rows and self._owed_ms > 0.0:
            self.learn(rows, self._owed_ms)
            self._owed_ms = 0.0
