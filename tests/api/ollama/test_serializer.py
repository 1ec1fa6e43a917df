"""Times as Ollama writes them."""

from draftwerk.api.ollama.serializer import nanoseconds, timestamp


def test_times_are_whole_nanoseconds_and_dates_in_utc() -> None:
    assert nanoseconds(1.5) == 1_500_000 and isinstance(nanoseconds(0.1), int)
    assert timestamp(0) == "1970-01-01T00:00:00Z"
