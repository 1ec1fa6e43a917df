"""The doctor reports a busy machine: what it measures then is too slow."""

from draftwerk.assembly.doctor import busy


def test_a_quiet_machine_is_fine_and_a_busy_one_is_reported() -> None:
    assert busy(0.1, 2).state == "good"
    found = busy(3.4, 2)
    assert found.state == "poor"
    assert "3.4 programs" in found.words
    assert "2 cores" in found.words
    assert busy(3.4, 64).state == "good"
