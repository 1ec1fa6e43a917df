"""Where a server's time went, by what its counters grew by."""

import pytest

from draftwerk_tools.loadtest.measure.device import STAGE, device_use, stages_ms

GROWTH = {
    "draftwerk_device_busy_seconds_total{part=forward}": 6.0,
    "draftwerk_device_busy_seconds_total{part=sample}": 2.0,
    "draftwerk_device_gap_seconds_sum": 2.0,
    "draftwerk_device_gap_seconds_count": 1000.0,
}


def test_a_device_is_busy_for_a_share_of_the_time_with_work() -> None:
    found = device_use(GROWTH)
    assert (
        found is not None
        and found.busy == pytest.approx(0.8)
        and found.gap_ms == pytest.approx(2.0)
    )


def test_a_server_that_counts_nothing_says_nothing() -> None:
    assert device_use({}) is None and stages_ms({}) == {}


def test_stages_have_their_mean_of_the_requests_that_ended() -> None:
    growth = {f"{STAGE}_sum{{stage=queue}}": 3.0, f"{STAGE}_count{{stage=queue}}": 6.0}
    assert stages_ms(growth) == {"queue": 500.0}
