"""What a step costs, learnt from noisy steps."""

import random
from itertools import pairwise

import pytest

from draftwerk.speculative.costs.roofline import MachineRates, Roofline
from draftwerk.speculative.costs.step_cost import StepCost
from draftwerk.speculative.costs.work import StepLoad
from tests.speculative.costs.test_work import SHAPE


def plain(tokens: int) -> StepLoad:
    return StepLoad(tokens, tokens)


def tiles(tokens: int) -> float:
    return 20.0 + 6.0 * ((tokens - 1) // 16)


def test_the_curve_finds_a_staircase_through_noise_and_outliers() -> None:
    rng = random.Random(1)
    cost = StepCost()
    for _ in range(3000):
        tokens = rng.randint(1, 64)
        ms = tiles(tokens) * rng.uniform(0.95, 1.05)
        cost.learn(plain(tokens), ms * 20 if rng.random() < 0.01 else ms)
    for tokens in (1, 8, 14, 24, 30, 40, 46, 60):
        assert cost.table(64)[tokens] == pytest.approx(tiles(tokens), rel=0.12)
    cost.check()


def test_measurements_at_start_are_used_at_once_and_corrected_later() -> None:
    cost = StepCost([(1, 10.0), (64, 20.0)])
    assert cost.table(64)[1] == 10.0
    assert cost.table(64)[64] == pytest.approx(20.0)
    assert 10.0 < cost.table(64)[32] < 20.0
    for _ in range(200):
        cost.learn(plain(64), 40.0)
    assert cost.table(64)[64] == pytest.approx(40.0, rel=0.05)


def test_a_change_of_pace_is_felt_at_every_size() -> None:
    cost = StepCost([(1, 10.0), (32, 12.0)])
    for _ in range(100):
        cost.learn(plain(32), 24.0)
    assert cost.table(32)[1] > 12.0


def test_a_start_on_a_busy_machine_is_unlearnt_at_sizes_that_do_not_come() -> None:
    rng = random.Random(1)
    for busy in (1.0, 2.0):
        cost = StepCost([(tokens, busy * tiles(tokens)) for tokens in (1, 4, 8, 32, 64, 128)])
        for _ in range(60):
            tokens = rng.choice((1, 2, 4, 8))
            cost.learn(plain(tokens), tiles(tokens) * rng.uniform(0.9, 1.1))
        for tokens in (1, 8, 32, 128):
            assert cost.table(128)[tokens] == pytest.approx(tiles(tokens), rel=0.12)


def test_what_contexts_cost_says_nothing_about_measurements_at_start() -> None:
    loads = [StepLoad(tokens, tokens) for tokens in (1, 8, 64, 256)]
    cost = StepCost([(load, machine(load)) for load in loads], ROOFLINE)
    for number in range(200):
        load = StepLoad().with_row(1000 * (number % 9), 8, 8)
        cost.learn(load, machine(load))
    assert cost.ms(loads[-1]) == pytest.approx(machine(loads[-1]), rel=0.1)


def test_what_is_unknown_costs_a_little_more_with_every_token() -> None:
    for cost in (StepCost(), StepCost([(8, 5.0)])):
        table = cost.table(1000)
        assert table[1000] > table[100] > table[10] > 0
        cost.check()


def test_a_larger_step_never_seems_cheaper() -> None:
    cost = StepCost([(1, 10.0), (8, 30.0), (16, 12.0), (64, 11.0)])
    table = cost.table(64)
    assert all(less <= more for less, more in pairwise(table[1:]))
    assert 10.0 <= table[1] <= table[64] < 30.0
    cost.check()


def test_a_size_not_seen_for_long_must_be_measured_again() -> None:
    cost = StepCost([(1, 10.0)])
    assert cost.known(1)
    assert not cost.known(2)
    assert cost.bounded(2)
    for _ in range(3000):
        cost.learn(plain(16), 12.0)
    assert not cost.known(1)
    assert not cost.bounded(7)
    assert cost.bounded(20)


def test_nonsense_is_not_learnt() -> None:
    cost = StepCost()
    cost.learn(plain(0), 5.0)
    cost.learn(plain(5), 0.0)
    assert not cost.known(5)


RATES = MachineRates(flops_per_s=6e11, bytes_per_s=3e10, attention_flops_per_s=2.5e11)
ROOFLINE = Roofline(shape=SHAPE, rates=RATES)


def machine(load: StepLoad, arithmetic: float = 3.0, reading: float = 2.0) -> float:
    """A machine that is slower than its roofline, by other factors than expected."""
    context = arithmetic * ROOFLINE.attention_ms(load) + reading * ROOFLINE.kv_ms(load)
    return 1.0 + 1.3 * ROOFLINE.products_ms(load) + context


def drawn_load(rng: random.Random) -> StepLoad:
    load = StepLoad()
    for _ in range(rng.choice((1, 1, 2, 8, 32))):
        count = rng.choice((1, 1, 4, 16))
        load = load.with_row(rng.randint(1, 4000), count, count)
    if rng.random() < 0.3:
        load = load.with_row(rng.randint(0, 3000), rng.randint(17, 256), rng.randint(0, 1))
    return load


@pytest.mark.parametrize("seed", range(4))
def test_context_and_products_are_told_apart_through_noise(seed: int) -> None:
    rng = random.Random(seed)
    cost = StepCost([(StepLoad(n, n), machine(StepLoad(n, n))) for n in (1, 8, 64)], ROOFLINE)
    for _ in range(1500):
        load = drawn_load(rng)
        ms = machine(load) * rng.uniform(0.9, 1.1)
        cost.learn(load, ms * 10 if rng.random() < 0.01 else ms)
    cost.check()
    assert cost.context.factors == pytest.approx((3.0, 2.0), rel=0.2)
    loads = [drawn_load(rng) for _ in range(200)]
    errors = sorted(abs(cost.ms(load) / machine(load) - 1) for load in loads)
    assert errors[100] < 0.06
    assert errors[190] < 0.15


def test_a_step_is_priced_at_contexts_that_were_never_seen() -> None:
    cost = StepCost((), ROOFLINE)
    rng = random.Random(5)
    for _ in range(400):
        load = StepLoad()
        for _ in range(rng.choice((1, 4, 16))):
            load = load.with_row(rng.randint(50, 1000), 1, 1)
        cost.learn(load, machine(load))
    far = StepLoad().with_row(8000, 1, 1)
    assert cost.ms(far) == pytest.approx(machine(far), rel=0.15)


def test_steps_behind_long_contexts_do_not_blur_what_short_ones_cost() -> None:
    def uneven(load: StepLoad) -> float:
        """A machine on which attention slows down with the context, as no factor tells."""
        slower = 1.0 + load.context_tokens / load.tokens / 8000
        return 1.0 + 1.3 * ROOFLINE.products_ms(load) + slower * ROOFLINE.attention_ms(load)

    cost = StepCost((), ROOFLINE)
    rng = random.Random(3)
    for _ in range(400):
        load = StepLoad().with_row(rng.choice((250, 4000)), 64, 64)
        cost.learn(load, uneven(load))
    for context in (60, 250):
        load = StepLoad().with_row(context, 64, 64)
        assert cost.ms(load) == pytest.approx(uneven(load), rel=0.1)


def test_without_a_measurement_the_roofline_is_the_estimate() -> None:
    cost = StepCost((), ROOFLINE)
    for load in (StepLoad(1, 1), StepLoad(64, 64), StepLoad().with_row(1000, 128, 128)):
        assert cost.ms(load) == pytest.approx(ROOFLINE.ms(load), rel=0.02)


def test_beyond_what_was_measured_the_curve_follows_the_scaled_roofline() -> None:
    cost = StepCost([(n, 2.0 * ROOFLINE.products_ms(plain(n))) for n in (1, 8, 64)], ROOFLINE)
    assert cost.ms(plain(512)) == pytest.approx(2.0 * ROOFLINE.products_ms(plain(512)), rel=0.02)


def test_tokens_without_logits_cost_less() -> None:
    cost = StepCost((), ROOFLINE)
    less = cost.ms(StepLoad(512, 1)) / cost.ms(StepLoad(512, 512))
    assert less == pytest.approx(1 - SHAPE.head_share, rel=0.02)


@pytest.mark.parametrize("budget_ms", [0.0, 20.0, 50.0, 120.0, 1e6])
def test_a_chunk_is_the_largest_that_fits(budget_ms: float) -> None:
    cost = StepCost((), ROOFLINE)
    beside = StepLoad()
    for start in (100, 900, 2500):
        beside = beside.with_row(start, 1, 1)
    count = cost.chunk_within(beside, 700, 512, budget_ms)
    assert 0 <= count <= 512
    assert count == 0 or cost.ms(beside.with_row(700, count, 0)) <= budget_ms
    assert count == 512 or cost.ms(beside.with_row(700, count + 1, 0)) > budget_ms


def test_contexts_cost_nothing_where_no_roofline_tells_them_apart() -> None:
    cost = StepCost([(1, 10.0)])
    cost.learn(StepLoad().with_row(4000, 1, 1), 30.0)
    assert cost.token_ms(4000) == 0.0
    assert cost.context_ms(StepLoad().with_row(4000, 1, 1)) == 0.0
