"""The times that a request names: `slo` and `deadline`."""

from msgspec import Struct

from draftwerk.api.requests.field_types import SloBody
from draftwerk.api.shared.errors import refused
from draftwerk.speculative.requests.slo import Slo, read_time


class TimeLimits(Struct, frozen=True):
    """The times that a request is promised by itself, and when it fails; in seconds."""

    slo: Slo | None = None
    deadline_s: float = 0.0
    """0 means never."""


def deadlines_of(slo: SloBody | None, deadline: str | float | None) -> TimeLimits:
    """Return the times of a request. Raises ApiError."""
    limits = SloBody() if slo is None else slo
    given = {"slo.ttft": limits.ttft, "slo.tpot": limits.tpot, "deadline": deadline}
    times = {name: _seconds(text, name) for name, text in given.items()}
    limits = None if slo is None else Slo(ttft=times["slo.ttft"], tpot=times["slo.tpot"])
    return TimeLimits(limits, times["deadline"])


def _seconds(given: str | float | None, field: str) -> float:
    """Return a time in seconds, 0 for none."""
    try:
        return 0.0 if given is None else read_time(given)
    except ValueError as error:
        raise refused(f"`{field}` must be {error}.", field, "invalid") from None
