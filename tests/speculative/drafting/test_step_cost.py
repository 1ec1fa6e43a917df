"""What a step costs, learnt from noisy steps."""

import random

import pytest

from draftwerk.speculative.drafting.step_cost import StepCost


def tiles(tokens: int) -> float:
    return 20.0 + 6.0 * ((tokens - 1) // 16)


def test_the_curve_finds_a_staircase_through_noise_and_outliers() -> None:
    rng = random.Random(1)
    cost = StepCost()
    for _ in range(3000):
        tokens = rng.randint(1, 64)
        ms = tiles(tokens) * rng.uniform(0.95, 1.05)
        cost.learn(tokens, ms * 20 if rng.random() < 0.01 else ms)
    for tokens in (1, 8, 14, 24, 30, 40, 46, 60):
        assert cost.table(64)[tokens] == pytest.approx(tiles(tokens), rel=0.12)
    cost.check()


def test_measurements_at_start_are_used_at_once_and_corrected_later() -> None:
    cost = StepCost([(1, 10.0), (64, 20.0)])
    assert cost.table(64)[1] == 10.0
    assert cost.table(64)[64] == pytest.approx(20.0)
    assert 10.0 < cost.table(64)[32] < 20.0
    for _ in range(200):
        cost.learn(64, 40.0)
    assert cost.table(64)[64] == pytest.approx(40.0, rel=0.05)


def test_a_change_of_pace_is_felt_at_every_size() -> None:
    cost = StepCost([(1, 10.0), (32, 12.0)])
    for _ in range(100):
        cost.learn(32, 24.0)
    assert cost.table(32)[1] > 12.0


def test_what_is_unknown_costs_a_little_more_with_every_token() -> None:
    for cost in (StepCost(), StepCost([(8, 5.0)])):
        table = cost.table(1000)
        assert table[1000] > table[100] > table[10] > 0
        cost.check()


def test_a_larger_step_never_seems_cheaper() -> None:
    cost = StepCost([(1, 10.0), (8, 30.0), (16, 12.0), (64, 11.0)])
    cost.check()


def test_a_size_not_seen_for_long_must_be_measured_again() -> None:
    cost = StepCost([(1, 10.0)])
    assert cost.known(1)
    assert not cost.known(2)
    assert cost.bounded(2)
    for _ in range(3000):
        cost.learn(16, 12.0)
    assert not cost.known(1)
    assert not cost.bounded(7)
    assert cost.bounded(20)


def test_nonsense_is_not_learnt() -> None:
    cost = StepCost()
    cost.learn(0, 5.0)
    cost.learn(5, 0.0)
    assert not cost.known(5)
