"""The number of threads, by injected measurements and clocks."""

from collections.abc import Callable

import pytest

from draftwerk.machine import threads
from draftwerk.machine.threads import counts_to_try, fastest_count, usable_cpus


@pytest.mark.parametrize(
    ("cpus", "quota", "usable"), [(64, 2, 2), (64, None, 64), (2, 8, 2), (1, 1, 1)]
)
def test_a_quota_and_affinity_both_bound(
    monkeypatch: pytest.MonkeyPatch, cpus: int, quota: int | None, usable: int
) -> None:
    monkeypatch.setattr(threads, "affinity", lambda: cpus)
    monkeypatch.setattr(threads, "quota_cpus", lambda: quota)
    assert usable_cpus() == usable


def test_few_cpus_are_all_used_and_nothing_is_measured() -> None:
    def never(count: int) -> float:
        raise AssertionError(count)

    assert [fastest_count(cpus, never, 1.0) for cpus in (1, 2, 3, 4)] == [1, 2, 3, 4]


def test_counts_are_all_and_shares_of_it() -> None:
    assert list(counts_to_try(8)) == [4, 6, 8]
    assert list(counts_to_try(64)) == [4, 6, 8, 12, 16, 24, 32, 48, 64]


class Stopwatch:
    """A clock that every measurement moves on."""

    def __init__(self, cost: Callable[[int], float], cost_s: float = 0.0) -> None:
        self.cost = cost
        self.cost_s = cost_s
        self.now = 0.0
        self.measured: list[int] = []

    def clock(self) -> float:
        return self.now

    def measure(self, count: int) -> float:
        self.measured.append(count)
        self.now += self.cost_s
        return self.cost(count)


@pytest.mark.parametrize(
    ("cost", "fastest"),
    [
        (lambda count: 1 / min(count, 16), 16),
        (lambda count: 1 / count, 64),
        (lambda count: 1 / count + count / 500, 24),
    ],
    ids=["bound by memory", "scales", "threads get in each other's way"],
)
def test_the_fastest_count_depends_on_the_work(cost: Callable[[int], float], fastest: int) -> None:
    watch = Stopwatch(cost)
    assert fastest_count(64, watch.measure, 2.0, watch.clock) == fastest


def test_the_budget_ends_the_measuring() -> None:
    watch = Stopwatch(lambda count: 1 / min(count, 16), cost_s=0.5)
    assert fastest_count(64, watch.measure, 1.0, watch.clock) == 48
    assert watch.measured == [64, 48]
