"""T(tokens, context): what a device step costs, learnt from the steps themselves.

    ms(load) = curve(equal tokens) + context cost

A token whose logits are not computed counts as less than one: "equal tokens" is what a step's
products amount to. Steps are counted in buckets of that. The curve goes through the mean of each
bucket that has been used of late, less its context cost; it never falls and is straight in between,
so tiles show as steep stretches. That it never falls is isotonic regression by pool adjacent
violators: a falling pair is noise, and is replaced by its weighted mean. Where nothing was
measured, the curve follows the roofline, scaled to the nearest measurement; what was measured at
start and not since, by how other such measurements turned out. Milliseconds throughout.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from math import exp, log

from draftwerk.speculative.costs.context_cost import ContextCost, Features
from draftwerk.speculative.costs.cost_curve import CostPoint, drawn, with_prior
from draftwerk.speculative.costs.roofline import Roofline
from draftwerk.speculative.costs.work import StepLoad

EDGES = (
    *(1, 2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128),
    *(160, 192, 224, 256, 320, 384, 448, 512, 768, 1024, 2048, 4096, 8192),
)
"""The most tokens that each bucket takes; dense where the decisions are made."""
WEIGHT_MAX = 16.0
"""Steps after which a bucket's old ones fade."""
WEIGHT_START = 4.0
"""The weight of a measurement at start, in steps."""
WEIGHT_KNOWN = 0.5
"""Below this, a bucket has been idle for so long that it does not count."""
FADING = 0.998
"""The factor by which every bucket's weight fades at each step."""
STEPS_COUNTED = 16
"""The steps of a size that count for how its measurement at start has turned out."""
DRIFT = 0.05
"""How much of an unexpected cost is put down to the machine's pace, at every size."""
SURPRISE_MAX = 2.0
"""A step counts as at most this many times what was expected, and at least its inverse."""
TOLD_MAX = 4.0
"""A step moves its bucket's means by so many times more, or less, than another at most."""
BASE_MIN = 0.1
"""The least share of a step's time that is left for its products, whatever its context seems to
cost."""
REFRESH_STEPS = 8
"""Steps between two updates of the curve."""
DRAWN_MIN = 40
"""The curve's least tokens: one text asks for no more, and drawing is a good part of an update."""
MeasuredStep = tuple[StepLoad | int, float]
"""A step and its milliseconds; a bare number is of tokens with logits, behind no context."""


class StepCost:
    """A running regression of device time on the size of steps, with the roofline as prior."""

    def __init__(
        self, measured: Iterable[MeasuredStep] = (), roofline: Roofline | None = None
    ) -> None:
        """Without a roofline, the curve is all that is learnt, and contexts cost nothing."""
        self.context = ContextCost(roofline)
        self._priors = () if roofline is None else _priors(roofline)
        self._head_share = roofline.shape.head_share if roofline else 0.0
        self._buckets = [_Bucket() for _ in EDGES]
        self._curve: list[float] = []
        self._fading, self._pace = 1.0, 1.0
        """What the steps since the last update do to every bucket: all are touched at once."""
        self._steps_since = 0
        self.add_measured(measured)

    def add_measured(self, measured: Iterable[MeasuredStep]) -> None:
        """Take in measurements made at start."""
        for known, ms in measured:
            load = StepLoad(known, known) if isinstance(known, int) else known
            self._count(self.equal_tokens(load), self.context.features(load), ms, WEIGHT_START)
        for bucket in self._buckets:
            bucket.start_ms, bucket.start_features = bucket.ms, bucket.features
        self._update()

    @property
    def known_max(self) -> float:
        """The tokens of the largest steps that have been seen of late."""
        return max((bucket.tokens for bucket in self._buckets if bucket.known), default=0.0)

    def known(self, tokens: int) -> bool:
        """Return whether steps of about this size have been seen of late."""
        return self._buckets[_bucket_of(tokens)].known

    def bounded(self, tokens: int) -> bool:
        """Return whether steps of at most about this size have been seen of late.

        If only larger ones have, the curve cannot tell what a step without drafts would save.
        """
        return any(bucket.known for bucket in self._buckets[: _bucket_of(tokens) + 1])

    def learn(self, load: StepLoad, ms: float) -> None:
        """Take in one step."""
        if load.tokens < 1 or ms <= 0.0:
            return
        tokens, features = self.equal_tokens(load), self.context.features(load)
        if self._buckets[_bucket_of(tokens)].known:
            expected = self._on_curve(tokens) + self.context.ms(features)
            ratio = min(max(ms / expected, 1 / SURPRISE_MAX), SURPRISE_MAX)
            ms = expected * ratio
            self._pace *= ratio**DRIFT
        else:
            self._steps_since = REFRESH_STEPS
        self._fading *= FADING
        bucket = self._buckets[_bucket_of(tokens)]
        if bucket.steps == 0:
            bucket.ms *= self._start_scale()
        bucket.steps = min(bucket.steps + 1, STEPS_COUNTED)
        self._count(tokens, features, ms, 1.0)
        self._steps_since += 1
        if self._steps_since >= REFRESH_STEPS:
            self._update()

    def equal_tokens(self, load: StepLoad) -> float:
        """Return the tokens with logits whose products amount to those of a step."""
        return max(1.0, load.tokens - self._head_share * (load.tokens - load.outputs))

    def ms(self, load: StepLoad) -> float:
        """Return what a step of this size costs."""
        return self._on_curve(self.equal_tokens(load)) + self.context_ms(load)

    def context_ms(self, load: StepLoad) -> float:
        """Return the part of it that a step without context would not cost."""
        return self.context.ms(self.context.features(load))

    def token_ms(self, context: int) -> float:
        """Return what a row behind `context` others adds to the context's cost with each token."""
        return self.context_ms(StepLoad(context_tokens=context))

    def chunk_within(
        self, load: StepLoad, start: int, count_max: int, ms_max: float, outputs: int = 0
    ) -> int:
        """Return how many tokens in line fit beside a load into a step of `ms_max`.

        They lie behind `start` others; of each, so many logits are asked for. 0 .. `count_max`.
        """
        return self.most_within(
            lambda count: load.with_row(start, count, outputs * count), count_max, ms_max
        )

    def most_within(self, load_of: Callable[[int], StepLoad], count_max: int, ms_max: float) -> int:
        """Return the most tokens, 0 .. `count_max`, whose load is a step of `ms_max` or less."""
        if count_max and self.ms(load_of(count_max)) <= ms_max:
            return count_max
        low, high = 0, max(0, count_max - 1)
        while low < high:
            middle = (low + high + 1) // 2
            if self.ms(load_of(middle)) <= ms_max:
                low = middle
            else:
                high = middle - 1
        return low

    def table(self, tokens_max: int) -> Sequence[float]:
        """Return the cost without context by token count, 0 to at least `tokens_max`."""
        if len(self._curve) <= tokens_max:
            self._curve = self._drawn(max(tokens_max, 2 * len(self._curve), DRAWN_MIN))
        return self._curve

    def check(self) -> None:
        """Assert that a larger step never seems cheaper."""
        curve = self.table(255)
        assert all(low <= high for low, high in pairwise(curve))
        self.context.check()

    def _on_curve(self, tokens: float) -> float:
        below = int(tokens)
        table = self.table(below + 1)
        return table[below] + (tokens - below) * (table[below + 1] - table[below])

    def _update(self) -> None:
        """Fade what was known before, and draw the curve anew when it is next looked at."""
        for bucket in self._buckets:
            bucket.fade(self._fading, self._pace)
        self.context.fade(self._fading, self._pace)
        self._fading = self._pace = 1.0
        self._steps_since = 0
        self.context.solve()
        self._curve.clear()

    def _count(self, tokens: float, features: Features, ms: float, weight: float) -> None:
        bucket = self._buckets[_bucket_of(tokens)]
        old, told = min(bucket.weight, WEIGHT_MAX), weight
        if bucket.known:
            # What another number of tokens would explain is not put down to the context.
            surplus = self._on_curve(tokens) - self._on_curve(bucket.tokens)
            deviation = (features[0] - bucket.features[0], features[1] - bucket.features[1])
            share = weight * old / (weight + old)
            self.context.learn(deviation, ms - bucket.ms - surplus, share, max(ms, bucket.ms))
            # Errors count relatively: 10 ms of a step of 200 tell less than 10 ms of one of 40.
            expected = max(bucket.ms + surplus + self.context.ms(deviation), BASE_MIN * bucket.ms)
            told *= min(max((bucket.ms / expected) ** 2, 1.0 / TOLD_MAX), TOLD_MAX)
        bucket.add(old, weight, told, tokens, ms, features)

    def _start_scale(self) -> float:
        """Return how many times its measurement at start a size costs, by those stepped since.

        They were measured together: a machine that was busy then was so for all.
        """
        total, moved = WEIGHT_START, 0.0
        for bucket in self._buckets:
            if bucket.steps and bucket.start_ms and bucket.known:
                total += bucket.steps
                start_ms = self._products_ms(bucket.start_ms, bucket.start_features)
                moved += bucket.steps * log(
                    self._products_ms(bucket.ms, bucket.features) / start_ms
                )
        return exp(moved / total)

    def _products_ms(self, ms: float, features: Features) -> float:
        """Return what is left of a step's time without its context."""
        return max(ms - self.context.ms(features), BASE_MIN * ms)

    def _points(self) -> list[CostPoint]:
        """Return (tokens, ms) of the known buckets without context, by pool adjacent violators."""
        pooled: list[tuple[float, float, float]] = []
        scale = self._start_scale()
        for bucket in self._buckets:
            if not bucket.known:
                continue
            weight, tokens = bucket.weight, bucket.tokens
            ms = self._products_ms(bucket.ms, bucket.features) * (1.0 if bucket.steps else scale)
            while pooled and pooled[-1][2] > ms:
                above = pooled.pop()
                total = above[0] + weight
                tokens = (above[0] * above[1] + weight * tokens) / total
                ms = (above[0] * above[2] + weight * ms) / total
                weight = total
            pooled.append((weight, tokens, ms))
        return [(tokens, ms) for _, tokens, ms in pooled]

    def _drawn(self, tokens_max: int) -> list[float]:
        points = self._points()
        if self._priors:
            points = with_prior(points, self._priors, tokens_max)
        return drawn(points, tokens_max)


class _Bucket:
    """Fading means of steps of about one size."""

    __slots__ = ("features", "ms", "start_features", "start_ms", "steps", "tokens", "weight")

    def __init__(self) -> None:
        self.weight = self.tokens = self.ms = self.start_ms = 0.0
        """`start_ms` is what was measured at start."""
        self.steps = 0
        """Taken in since, as far as they count."""
        self.features = self.start_features = (0.0, 0.0)

    @property
    def known(self) -> bool:
        return self.weight >= WEIGHT_KNOWN

    def fade(self, share: float, pace: float) -> None:
        """Keep a share of what was learnt; every step took `pace` times what it had."""
        self.weight *= share
        self.ms *= pace
        self.start_ms *= pace

    def add(
        self,
        old: float,
        weight: float,
        told: float,
        tokens: float,
        ms: float,
        features: Features,
    ) -> None:
        """Take in one step; those before it weigh `old`, and it moves the means as `told` does."""
        self.weight = old + weight
        share = told / (old + told)
        self.tokens += (tokens - self.tokens) * share
        self.ms += (ms - self.ms) * share
        first, second = self.features
        self.features = (
            first + (features[0] - first) * share,
            second + (features[1] - second) * share,
        )


def _bucket_of(tokens: float) -> int:
    return min(bisect_left(EDGES, tokens), len(EDGES) - 1)


def _priors(roofline: Roofline) -> tuple[CostPoint, ...]:
    """Return (tokens, ms) of the roofline at each bucket's edge."""
    return tuple((float(edge), roofline.products_ms(StepLoad(edge, edge))) for edge in EDGES)
