"""A clock counts from when it was made."""

from draftwerk_tools.loadtest.client.clock import clock_from_now


def test_it_begins_at_nought_and_goes_on() -> None:
    clock = clock_from_now()
    first = clock()
    assert 0.0 <= first <= clock() < 60.0
