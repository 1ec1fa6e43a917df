"""Small rules about time: how often to restart, when to come again."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftwerk.actors.devices.restarts import RestartLimit
from draftwerk.actors.monitoring.drain_rate import RETRY_MS_MAX, RETRY_MS_MIN, WINDOW, DrainRate
from draftwerk.actors.requests.errors import OverloadedError

moments = st.lists(st.floats(0, 1000), max_size=30).map(sorted)


def test_a_failure_is_not_counted_after_the_window() -> None:
    limit = RestartLimit(failures_max=1, window_s=10)
    assert limit.pause(0.0) is not None
    assert limit.pause(9.0) is None
    assert limit.pause(19.0) is not None


@given(moments, st.integers(0, 5), st.floats(0.1, 100))
def test_a_restart_is_allowed_if_few_failures_are_recent(
    failures: list[float], failures_max: int, window_s: float
) -> None:
    limit = RestartLimit(failures_max=failures_max, window_s=window_s)
    for n, now in enumerate(failures):
        recent = sum(then > now - window_s for then in failures[: n + 1])
        assert (limit.pause(now) is not None) == (recent <= failures_max)


def test_failures_in_vain_are_retried_ever_more_slowly_and_then_no_more() -> None:
    limit = RestartLimit(failures_max=100, fruitless_max=8, pause_s=0.1, pause_max_s=5.0)
    pauses = [limit.pause(n, fruitful=False) for n in range(9)]
    assert pauses[8] is None
    for n, pause_s in enumerate(pauses[:8], start=1):
        most = min(0.1 * 2**n, 5.0)
        assert pause_s is not None and most / 2 <= pause_s <= most


def test_whatever_was_achieved_in_between_makes_the_next_pause_short() -> None:
    limit = RestartLimit(failures_max=100, fruitless_max=2, pause_s=0.1)
    for n in range(20):
        pause_s = limit.pause(n, fruitful=n % 2 == 0)
        assert pause_s is not None and pause_s <= 0.2


def test_pauses_differ_so_that_servers_do_not_come_back_together() -> None:
    assert len({RestartLimit().pause(0.0) for _ in range(9)}) > 1


def rate_of(endings: Iterable[float]) -> DrainRate:
    rate = DrainRate()
    for moment in endings:
        rate.record(moment)
    return rate


@pytest.mark.parametrize("endings", [[], [5.0]])
def test_a_second_is_asked_for_while_nothing_is_known(endings: list[float]) -> None:
    assert rate_of(endings).retry_after_ms(6.0) == 1000


def test_the_mean_time_between_endings_is_asked_for() -> None:
    rate = rate_of((0.0, 1.0, 2.0, 3.0))
    assert rate.retry_after_ms(4.0) == 1000
    assert rate.retry_after_ms(8.0) == 2000, "a server that hangs lets its clients wait longer"


def test_only_the_latest_endings_count() -> None:
    rate = rate_of((-1e6, *(n / 2 for n in range(WINDOW))))
    assert rate.retry_after_ms(WINDOW / 2) == 500


@given(moments, st.floats(0, 1e6))
def test_what_is_asked_for_is_bounded(endings: list[float], later: float) -> None:
    assert RETRY_MS_MIN <= rate_of(endings).retry_after_ms(1000 + later) <= RETRY_MS_MAX


def test_a_refusal_carries_the_time_to_retry() -> None:
    assert OverloadedError(250).retry_after_ms == 250
    assert "250 ms" in str(OverloadedError(250))
