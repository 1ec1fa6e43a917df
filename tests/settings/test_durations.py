"""Durations in the forms that clients send."""

from math import inf

import pytest

from draftwerk.settings.durations import read_duration


@pytest.mark.parametrize(
    ("given", "seconds"),
    [("5m", 300), ("1h30m", 5400), ("250ms", 0.25), ("300", 300), (0, 0), (1.5, 1.5), ("0", 0),
     (-1, inf), ("-1", inf), ("-1m", inf), ("1.5h", 5400), ("24h", 86400)],
)  # fmt: skip
def test_durations_are_read_in_every_form(given: str | float, seconds: float) -> None:
    assert read_duration(given) == seconds


@pytest.mark.parametrize("given", ["", "5 minutes", "m", "nan", "inf", "1e400", "-x", "5m3"])
def test_what_is_no_duration_is_refused(given: str) -> None:
    with pytest.raises(ValueError, match="a number of seconds"):
        read_duration(given)
