"""What pairs differ by: near the truth, and as sure as is said."""

import random
from math import inf

import pytest

from benchmarks.support.paired import Uncertain, location, ratio


def runs(rng: random.Random, count: int, faster: float) -> list[tuple[float, float]]:
    """Return pairs of times on a machine that is a third slower now and then."""

    def one(seconds: float) -> float:
        return seconds * rng.gauss(1.0, 0.03) * (1.33 if rng.random() < 0.05 else 1.0)

    return [(one(1.0), one(1.0 / faster)) for _ in range(count)]


@pytest.mark.parametrize("faster", [0.97, 1.0, 1.4])
@pytest.mark.parametrize("count", [5, 20, 50])
def test_the_truth_is_within_the_error_in_most_cases(faster: float, count: int) -> None:
    found = [ratio(runs(random.Random(seed), count, faster)) for seed in range(200)]
    assert sum(abs(one.value - faster) <= one.error for one in found) >= 0.93 * len(found)


def test_more_pairs_are_surer_and_one_is_not_sure_at_all() -> None:
    few, many = (ratio(runs(random.Random(1), count, 1.0)).error for count in (20, 80))
    assert many < 0.6 * few
    assert location([0.5]) == (0.5, inf)


def test_what_every_fourth_run_costs_is_seen_and_what_one_in_twenty_costs_is_not() -> None:
    assert location([0.0, 0.0, 0.0, 0.1] * 5).value > 0.018
    assert location([*[0.0] * 19, 0.1]).value == 0.0


def test_a_value_is_shown_with_its_error() -> None:
    assert str(Uncertain(0.9876, 0.0123)) == "0.988 ±0.012"
