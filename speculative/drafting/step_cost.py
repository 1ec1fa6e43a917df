"""T(N): what a device step over N tokens costs, learnt from the steps themselves.

Steps are filed by token count. The curve goes through the mean of each file that has been used of
late; it never falls and is straight in between, so tiles show as steep stretches. That it never
falls is isotonic regression by pool adjacent violators: a falling pair is noise, and is replaced by
its weighted mean. Milliseconds throughout.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import pairwise

EDGES = (
    *(1, 2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128),
    *(160, 192, 224, 256, 320, 384, 448, 512, 768, 1024, 2048, 4096, 8192),
)
"""The most tokens that each file takes; dense where the decisions are made."""
WEIGHT_MAX = 16.0
"""Steps after which a file's old ones fade."""
WEIGHT_SEED = 4.0
"""What a measurement at start is worth, in steps."""
WEIGHT_KNOWN = 0.5
"""Below this, a file has been idle for so long that it does not count."""
FADING = 0.998
"""Of every file's weight, at each step."""
DRIFT = 0.05
"""How much of an unexpected cost is put down to the machine's pace, at every size."""
SURPRISE_MAX = 2.0
"""A step counts as at most this many times what was expected, and at least its inverse."""
SLOPE_PRIOR = 0.01
"""What a token adds to a step of one, as a share of it, while only one file is known."""
REFRESH_STEPS = 8
"""Steps between two updates of the curve."""


class StepCost:
    """A running regression of device time on tokens."""

    def __init__(self, measured: Iterable[tuple[int, float]] = ()) -> None:
        self._weights = [0.0] * len(EDGES)
        self._tokens = [0.0] * len(EDGES)
        self._ms = [0.0] * len(EDGES)
        self._curve: list[float] = []
        self._steps_since = 0
        self.seed(measured)

    def seed(self, measured: Iterable[tuple[int, float]]) -> None:
        """Take in measurements made at start."""
        for tokens, ms in measured:
            self._file(tokens, ms, WEIGHT_SEED)
        self._curve.clear()

    def known(self, tokens: int) -> bool:
        """Return whether steps of about this size have been seen of late."""
        return self._weights[_bin(tokens)] >= WEIGHT_KNOWN

    def bounded(self, tokens: int) -> bool:
        """Return whether steps of at most about this size have been seen of late.

        If only larger ones have, the curve cannot tell what a step without drafts would save.
        """
        return max(self._weights[: _bin(tokens) + 1]) >= WEIGHT_KNOWN

    def learn(self, tokens: int, ms: float) -> None:
        """Take in one step."""
        if tokens < 1 or ms <= 0.0:
            return
        if self.known(tokens):
            expected = self.table(tokens)[tokens]
            ratio = min(max(ms / expected, 1 / SURPRISE_MAX), SURPRISE_MAX)
            ms = expected * ratio
            pace = ratio**DRIFT
            self._ms = [cost * pace for cost in self._ms]
        else:
            self._steps_since = REFRESH_STEPS
        self._weights = [weight * FADING for weight in self._weights]
        self._file(tokens, ms, 1.0)
        self._steps_since += 1
        if self._steps_since >= REFRESH_STEPS:
            self._curve.clear()

    def table(self, tokens_max: int) -> Sequence[float]:
        """Return the cost by token count, 0 to at least `tokens_max`."""
        if len(self._curve) <= tokens_max:
            self._curve = _drawn(self._points(), max(tokens_max, 2 * len(self._curve), 255))
            self._steps_since = 0
        return self._curve

    def check(self) -> None:
        """Assert that a larger step never seems cheaper."""
        curve = self.table(255)
        assert all(low <= high for low, high in pairwise(curve))

    def _file(self, tokens: int, ms: float, weight: float) -> None:
        bin_ = _bin(tokens)
        total = min(self._weights[bin_], WEIGHT_MAX) + weight
        self._weights[bin_] = total
        self._tokens[bin_] += (tokens - self._tokens[bin_]) * weight / total
        self._ms[bin_] += (ms - self._ms[bin_]) * weight / total

    def _points(self) -> list[tuple[float, float]]:
        """Return (tokens, ms) of the known files, rising: pool adjacent violators."""
        pooled: list[tuple[float, float, float]] = []
        for weight, tokens, ms in zip(self._weights, self._tokens, self._ms, strict=True):
            if weight < WEIGHT_KNOWN:
                continue
            while pooled and pooled[-1][2] > ms:
                above = pooled.pop()
                total = above[0] + weight
                tokens = (above[0] * above[1] + weight * tokens) / total
                ms = (above[0] * above[2] + weight * ms) / total
                weight = total
            pooled.append((weight, tokens, ms))
        return [(tokens, ms) for _, tokens, ms in pooled]


def _bin(tokens: int) -> int:
    return min(bisect_left(EDGES, tokens), len(EDGES) - 1)


def _drawn(points: list[tuple[float, float]], tokens_max: int) -> list[float]:
    """Return the curve through the points, level before them and straight on after them."""
    if not points:
        points = [(1.0, 1.0)]
    first, last = points[0], points[-1]
    slope = (last[1] - first[1]) / (last[0] - first[0]) if len(points) > 1 else 0.0
    slope = max(slope, SLOPE_PRIOR * first[1] / (1.0 + SLOPE_PRIOR * first[0]))
    ends = [*points, (tokens_max + 1.0, last[1] + slope * (tokens_max + 1.0 - last[0]))]
    curve = [first[1]] * (int(first[0]) + 1)
    for (left, low), (right, high) in pairwise(ends):
        if right > left:
            rise = (high - low) / (right - left)
            curve.extend(low + rise * (n - left) for n in range(len(curve), int(right) + 1))
    return curve
