"""The number of replicas as a function of waits: bounds, monotony, and no going to and fro."""

from itertools import pairwise
from math import ceil

from hypothesis import given
from hypothesis import strategies as st

from draftwerk_cluster.scaling import GROWTH_MAX, IDLE_SHARE, replicas_for

WAITS = st.lists(st.floats(0, 100), min_size=1, max_size=40)
TARGETS = st.floats(0.01, 10)
COUNTS = st.integers(1, 40)
MANY = 10**6


@given(WAITS, COUNTS, TARGETS, st.integers(1, 20), st.integers(0, 20))
def test_there_are_as_many_as_allowed_and_no_leaps(
    waits: list[float], current: int, target: float, least: int, more: int
) -> None:
    most = least + more
    wanted = replicas_for(waits, current, target, least, most)
    assert least <= wanted <= most
    if least <= current <= most:
        assert current - 1 <= wanted <= ceil(GROWTH_MAX * current)


@given(WAITS, COUNTS, TARGETS, st.randoms(use_true_random=False))
def test_the_order_of_replicas_does_not_matter(
    waits: list[float], current: int, target: float, dice: object
) -> None:
    mixed = list(waits)
    dice.shuffle(mixed)  # type: ignore[attr-defined]
    # Sums of floats depend on their order in the last place alone.
    found = {replicas_for(each, current, target, 1, MANY) for each in (waits, mixed)}
    assert max(found) - min(found) <= 1


@given(WAITS, WAITS, COUNTS, TARGETS)
def test_longer_waits_never_want_fewer(
    waits: list[float], more: list[float], current: int, target: float
) -> None:
    longer = [wait + extra for wait, extra in zip(waits, more + [0.0] * len(waits), strict=False)]
    before = replicas_for(waits, current, target, 1, MANY)
    assert replicas_for(longer, current, target, 1, MANY) >= before


@given(st.floats(0, 1000), COUNTS, TARGETS)
def test_a_queue_that_stays_is_met_and_then_nothing_moves(
    queue_s: float, current: int, target: float
) -> None:
    counts = [current]
    for _ in range(60):
        waits = [queue_s / counts[-1]] * counts[-1]
        counts.append(replicas_for(waits, counts[-1], target, 1, 4000))
    changes = [after - before for before, after in pairwise(counts)]
    assert all(each >= 0 for each in changes) or all(each <= 0 for each in changes)
    final = counts[-1]
    if final < 4000:
        assert queue_s / final <= target * (1 + 1e-9)
    if changes[-1] == 0 and final > 1:
        assert queue_s / (final - 1) >= IDLE_SHARE * target * (1 - 1e-9)


@given(COUNTS, TARGETS)
def test_without_news_nothing_moves(current: int, target: float) -> None:
    assert replicas_for([], current, target, 1, MANY) == current
