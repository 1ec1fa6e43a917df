"""What a pause was made of adds up to it, and waits are put down to who had the cores."""

import pytest

from benchmarks.support.pause_parts import (
    CoreSample,
    CoreWaits,
    DeviceStep,
    device_steps,
    parts_of,
    sentence,
)

STEPS = [DeviceStep(0.0, 0.010), DeviceStep(0.012, 0.052), DeviceStep(0.053, 0.060)]


def waits(*samples: tuple[float, float, float]) -> CoreWaits:
    """Return waits of two threads, of which one never waits."""
    found = [CoreSample(at, {"a": waited, "b": 0.0}, own) for at, waited, own in samples]
    return CoreWaits((), found)


def test_the_parts_of_a_pause_add_up_to_it() -> None:
    looked = waits((0.0, 0.0, 1.0), (0.010, 0.0, 1.001), (0.060, 0.012, 1.006))
    found = parts_of(0.011, 0.054, STEPS, looked)
    assert found.pause_s == pytest.approx(0.043)
    assert found.computing_s == pytest.approx(0.041 - 0.012)
    assert (found.core_s, found.others_s) == pytest.approx((0.005, 0.007))
    assert found.loop_s == pytest.approx(0.002)
    assert found.steps == 1
    assert "43 ms = 29 computing in 1.0 steps" in sentence([found])


def test_nothing_is_put_down_to_what_was_not_looked_at() -> None:
    found = parts_of(0.011, 0.054, STEPS, waits((0.0, 0.0, 1.0), (0.010, 0.5, 1.0)))
    assert (found.core_s, found.others_s) == (0.0, 0.0)
    assert sentence([]) == "no pauses"


def test_the_devices_steps_are_found_in_a_trace() -> None:
    trace = [
        {"ph": "M", "tid": 3, "args": {"name": "device"}},
        {"ph": "M", "tid": 4, "args": {"name": "cache"}},
        {"ph": "X", "tid": 3, "ts": 1e6, "dur": 5e5},
        {"ph": "X", "tid": 4, "ts": 2e6, "dur": 5e5},
    ]
    assert device_steps(trace) == [DeviceStep(1.0, 1.5)]
