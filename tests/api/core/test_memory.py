"""The memory guard: what it counts, and when it says no."""

from draftwerk.api.core.memory import MemoryGuard


def test_it_says_no_near_the_limit_and_yes_only_well_below_it() -> None:
    guard = MemoryGuard(1000)
    answers: list[bool] = []
    for used in (940, 950, 940, 900, 899, 940):
        guard.observe(used)
        answers.append(guard.full)
    assert answers == [False, True, True, True, False, False]


def test_without_a_limit_it_never_says_no() -> None:
    guard = MemoryGuard(0)
    guard.observe(2**50)
    assert not guard.full
