"""Schedules are drawn from a seed, and have the shape that was asked for."""

import math
from itertools import islice, pairwise
from random import Random
from statistics import mean, stdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftwerk_tools.loadtest.options import LoadTestOptions
from draftwerk_tools.loadtest.schedule.draw import draw, settled
from draftwerk_tools.loadtest.schedule.plan import open_times, replayed_times
from draftwerk_tools.loadtest.schedule.rates import RateProfile, arrivals, parse_rate
from draftwerk_tools.loadtest.workloads.catalogue import open_workload


def planned(**options: object) -> list[object]:
    chosen = settled(LoadTestOptions(**({"rate": "5", "requests": 40} | options)))  # type: ignore[arg-type]
    return list(draw(chosen, open_workload(chosen)))


def test_one_seed_draws_one_plan() -> None:
    given = {"cancel_fraction": 0.5, "prefix_groups": 4, "prompt_spread": 0.5}
    assert planned(seed=3, **given) == planned(seed=3, **given)
    assert planned(seed=3, **given) != planned(seed=4, **given)


def test_more_requests_only_lengthen_a_plan() -> None:
    assert planned(requests=60)[:40] == planned(requests=40)


def gaps(burstiness: float) -> list[float]:
    times = islice(arrivals(RateProfile(((0.0, 4.0),)), burstiness, Random(1)), 4000)
    return [later - earlier for earlier, later in pairwise(times)]


@pytest.mark.parametrize("burstiness", [0.3, 1.0, 4.0])
def test_gaps_have_the_mean_and_spread_of_their_distribution(burstiness: float) -> None:
    drawn = gaps(burstiness)
    assert mean(drawn) == pytest.approx(0.25, rel=0.1)
    assert stdev(drawn) / mean(drawn) == pytest.approx(1 / math.sqrt(burstiness), rel=0.1)


def test_infinite_burstiness_is_a_metronome() -> None:
    assert gaps(math.inf)[:100] == pytest.approx([0.25] * 100)


def test_a_ramp_comes_denser_and_denser() -> None:
    times = open_times("1..9", math.inf, 0, None, 10.0)
    assert len(times) == 50
    early, late = (sum(a <= at < b for at in times) for a, b in ((0, 2), (8, 10.1)))
    assert (early, late) == (3, 17)


@given(
    st.lists(st.tuples(st.floats(0.1, 5), st.floats(0, 20)), min_size=1, max_size=4),
    st.floats(0, 200),
)
def test_the_inverse_of_a_profile_undoes_it(
    steps: list[tuple[float, float]], wanted: float
) -> None:
    at, points = 0.0, [(0.0, 1.0)]
    for length, rate in steps:
        at += length
        points.append((at, rate))
    time = RateProfile(tuple(points)).time_of(wanted)
    if math.isfinite(time):
        assert expected_arrivals(points, time) == pytest.approx(wanted, abs=1e-6)


def expected_arrivals(points: list[tuple[float, float]], until: float) -> float:
    total = 0.0
    for (start, low), (end, high) in pairwise(points):
        if until <= start:
            return total
        stop = min(until, end)
        at_stop = low + (high - low) * (stop - start) / (end - start)
        total += (stop - start) * (low + at_stop) / 2
    return total + max(0.0, until - points[-1][0]) * points[-1][1]


def test_a_rate_that_falls_to_zero_ends_the_arrivals() -> None:
    times = list(arrivals(parse_rate("0:10,2:0"), math.inf, Random(0)))
    assert len(times) in (9, 10) and times[-1] <= 2


def test_a_recorded_trace_starts_at_once_and_can_be_stretched() -> None:
    assert replayed_times([30.0, 10.0, 20.0], 0.5, None, None) == [0.0, 5.0, 10.0]
    assert replayed_times([0.0, 1.0, 2.0, 3.0], 1.0, 3, 1.5) == [0.0, 1.0]


@pytest.mark.parametrize("text", ["0", "-1", "1:5,2:6", "0:1,0:2", "x", "1..5"])
def test_rates_that_make_no_sense_are_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_rate(text)


def test_contradicting_loads_are_refused() -> None:
    with pytest.raises(ValueError, match="exclude"):
        settled(LoadTestOptions(concurrency=2, rate="3"))
    with pytest.raises(ValueError, match="responses"):
        settled(LoadTestOptions(transport="ws"))
    with pytest.raises(ValueError, match="timestamp"):
        planned(rate=None, replay=True)
