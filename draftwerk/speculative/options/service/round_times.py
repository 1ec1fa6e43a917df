"""How long rounds take beside what a step was expected to cost, learnt from the rounds.

A reader waits for the device and for what lies between two of its steps: planning, messages, other
programs. And half of all steps take longer than expected. What was promised is a mean over a text,
which is in time with a probability of 95 % if rounds aim at

    T = tpot / (1 + z * spread / sqrt(n)) - gap

where spread is the standard deviation of a round's time as a share of what was expected, and n the
tokens of a text. A pause is one round: n = 1.
"""

from math import sqrt

PACE = 0.02
"""Weight of the newest round."""
LATE_MAX = 1.0
"""The most that a round is taken to be longer than expected, as a share: a stopped process is none
that will be stopped in each round."""
SPREAD_MAX = 0.25
"""The most spread of single rounds: where other programs have the cores, shorter rounds read
prompts no sooner."""
QUANTILE = 1.645
"""The quantile of the normal distribution, 95 %."""
TEXT_TOKENS = 32
"""Tokens of a text that has no time to make up for a late one."""


class RoundTimes:
    """Fading means over rounds that followed each other at once. Milliseconds."""

    def __init__(self) -> None:
        self._between_ms = self._head_ms = 0.0
        self._variance = 0.0

    @property
    def gap_ms(self) -> float:
        """The time that rounds take beside their steps."""
        return self._between_ms + self._head_ms

    def learn(
        self, interval_ms: float, device_ms: float, expected_ms: float, head_ms: float = 0.0
    ) -> None:
        """Take in a round: from the one before, on the device, and what that was expected to be.

        `head_ms` is the draft head's time after the step: a round in which it was probed is no sign
        that others will take longer.
        """
        if device_ms <= 0.0 or expected_ms <= 0.0:
            return
        most = LATE_MAX * expected_ms
        interval_ms -= head_ms
        between_ms = min(max(0.0, interval_ms - device_ms), most)
        self._between_ms += PACE * (between_ms - self._between_ms)
        self._head_ms += PACE * (min(head_ms, most) - self._head_ms)
        # With several rounds under way the next one may follow sooner than its step takes.
        late = (max(interval_ms, device_ms) - self._between_ms) / expected_ms - 1.0
        self._variance += PACE * (min(max(late, -LATE_MAX), LATE_MAX) ** 2 - self._variance)

    def limit_ms(self, tpot_s: float) -> float:
        """Return what a step may be expected to cost, so that texts keep a mean time per token."""
        return 1e3 * tpot_s / (1.0 + QUANTILE * sqrt(self._variance / TEXT_TOKENS)) - self.gap_ms

    def pause_mean_s(self, pause_s: float) -> float:
        """Return the mean time per token that rounds keep of which one in 20 takes longer than a
        pause."""
        spread = min(sqrt(self._variance), SPREAD_MAX)
        mean = 1.0 + QUANTILE * sqrt(self._variance / TEXT_TOKENS)
        return pause_s * mean / (1.0 + QUANTILE * spread)

    def check(self) -> None:
        """Assert that both means are sane."""
        assert self._between_ms >= 0.0 <= self._head_ms
        assert 0.0 <= self._variance <= 1.0 + 1e-9
