"""The line through measured times."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftwerk.speculative.drafting.row_cost import SURPRISE_MAX, AskingCost, RowCost


def test_what_is_fixed_is_told_from_what_each_row_takes() -> None:
    cost = RowCost(2.0)
    for rows in (1, 16, 4, 2, 8, 16, 1):
        cost.learn(rows, 4.0 + 0.9 * rows)
    assert cost.ms(12) == pytest.approx(4.0 + 0.9 * 12)
    assert cost.ms(0) == 0.0


def test_equal_counts_of_rows_share_all() -> None:
    cost = RowCost(0.5)
    for _ in range(3):
        cost.learn(4, 6.0)
    assert (cost.fixed_ms, cost.row_ms) == (0.0, 1.5)


def test_one_slow_round_teaches_little() -> None:
    cost = RowCost(0.5)
    for _ in range(40):
        cost.learn(1, 1.0)
    cost.learn(1, 1000.0)
    assert 1.0 < cost.ms(1) < 1.0 + 0.1 * SURPRISE_MAX


def test_after_a_slow_beginning_it_is_known_soon() -> None:
    cost = RowCost(0.5)
    cost.learn(4, 1000.0)
    assert cost.ms(4) == SURPRISE_MAX * 2.0
    cost.learn(4, 1.6)
    assert cost.ms(4) == pytest.approx(1.6)


@given(st.lists(st.tuples(st.integers(0, 64), st.floats(0.0, 1e4)), max_size=60))
def test_more_rows_never_seem_to_take_less(measured: list[tuple[int, float]]) -> None:
    cost = RowCost(0.5)
    for rows, ms in measured:
        cost.learn(rows, ms)
        cost.check()


def test_asking_takes_what_rounds_take_longer_than_those_that_rest() -> None:
    cost = AskingCost(0.05)
    for number in range(200):
        asks, follows = number % 5 == 2, number % 5 == 3
        cost.learn_round(8 if asks else 0, 0.2 + 0.8 * asks + 0.4 * follows)
    assert cost.ms(8) == pytest.approx(1.2, rel=0.01)
