"""What rounds take beside what a step was expected to cost."""

from random import Random
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftwerk.speculative.costs.work import StepLoad
from draftwerk.speculative.options.service.round_times import RoundTimes
from draftwerk.speculative.rounds import Decision
from draftwerk.speculative.row_parts.step_report import StepReport
from tests.speculative.options.service.test_slo_times import submit, world_of
from tests.speculative.scheduling.scheduler_world import World
from tests.support.rounds import verdict_on


def test_a_step_has_the_time_that_lies_not_between_two() -> None:
    times = RoundTimes()
    assert times.limit_ms(0.05) == 50.0
    for _ in range(500):
        times.learn(interval_ms=46.0, device_ms=40.0, expected_ms=40.0)
    assert times.gap_ms == pytest.approx(6.0, rel=0.01)
    assert times.limit_ms(0.05) == pytest.approx(44.0, abs=1.0)
    times.check()


def test_a_probe_of_the_draft_head_makes_no_other_round_shorter() -> None:
    """But for its share of the time."""
    probed, plain = RoundTimes(), RoundTimes()
    for number in range(1000):
        head_ms = 0.0 if number % 100 else 30.0
        probed.learn(46.0 + head_ms, 40.0, 40.0, head_ms)
        plain.learn(46.0, 40.0, 40.0)
    assert probed.pause_mean_s(0.1) == plain.pause_mean_s(0.1)
    assert plain.limit_ms(0.05) - 0.6 < probed.limit_ms(0.05) < plain.limit_ms(0.05)
    probed.check()


def test_a_head_that_runs_in_every_round_is_left_its_time() -> None:
    times = RoundTimes()
    for _ in range(500):
        times.learn(50.0, device_ms=40.0, expected_ms=40.0, head_ms=4.0)
    assert times.gap_ms == pytest.approx(10.0, rel=0.01)


@pytest.mark.parametrize("noise", [0.0, 0.1, 0.3])
def test_texts_keep_their_mean_time_through_noise(noise: float) -> None:
    rng, times = Random(1), RoundTimes()

    def round_ms(expected_ms: float) -> float:
        device_ms = expected_ms * rng.lognormvariate(-noise * noise / 2, noise)
        times.learn(device_ms + 3.0, device_ms, expected_ms)
        return device_ms + 3.0

    for _ in range(300):
        round_ms(times.limit_ms(0.05))
    texts = [fmean(round_ms(times.limit_ms(0.05)) for _ in range(32)) for _ in range(400)]
    assert sum(mean <= 50.0 + 0.01 for mean in texts) >= 0.9 * len(texts)
    assert fmean(texts) >= 49.9 / (1.0 + noise), "more was left than the noise asks for"


@given(st.lists(st.tuples(*[st.floats(0.0, 1e7)] * 2), max_size=50))
def test_no_round_however_late_stops_the_next_ones(rounds: list[tuple[float, float]]) -> None:
    times = RoundTimes()
    for interval_ms, device_ms in rounds:
        times.learn(interval_ms, device_ms, expected_ms=40.0)
        times.learn(interval_ms=1.0, device_ms=0.5, expected_ms=0.01)
        times.check()
    before = times.limit_ms(0.05)
    times.learn(interval_ms=1e9, device_ms=40.0, expected_ms=40.0)
    assert times.limit_ms(0.05) >= before - 0.05 * 50.0 - 0.8


def committed(world: World, begun_s: float, ended_s: float, device_ms: float) -> None:
    """Plan a round, and commit it later."""
    round_ = world.scheduler.plan(begun_s)
    assert round_ is not None
    decisions = [Decision(tokens=(9,) if row.samples else ()) for row in round_.rows]
    report = StepReport(load=StepLoad(1, 1), device_ms=device_ms)
    world.scheduler.commit(verdict_on(round_, *decisions, report=report), ended_s)


def test_what_lies_between_rounds_is_learnt_and_idle_time_is_not() -> None:
    def limit_ms(world: World) -> float:
        return world.service.round_times.limit_ms(0.05)

    world = world_of()
    submit(world, tokens_max=2)
    committed(world, 0.0, 0.011, 11.0)
    before = limit_ms(world)
    committed(world, 0.011, 0.030, 11.0)
    assert world.scheduler.idle
    assert limit_ms(world) < before
    before = limit_ms(world)
    submit(world, tokens_max=2)
    committed(world, 9.0, 9.011, 11.0)
    assert limit_ms(world) == before


@pytest.mark.parametrize("noise", [0.02, 0.1, 0.2])
def test_few_rounds_are_longer_than_a_pause_may_be(noise: float) -> None:
    rng, times = Random(2), RoundTimes()
    rounds: list[float] = []
    for _ in range(2000):
        expected_ms = times.limit_ms(times.pause_mean_s(0.05))
        device_ms = expected_ms * rng.lognormvariate(-noise * noise / 2, noise)
        times.learn(device_ms + 3.0, device_ms, expected_ms)
        rounds.append(device_ms + 3.0)
    assert 0.9 < fmean(each <= 50.0 for each in rounds[400:]) < 0.99
