"""What a request says of its times: `slo` and `deadline`."""

from draftwerk.api.core.errors import refused
from draftwerk.api.replying.field_types import SloBody
from draftwerk.speculative.slo import Promise, read_time


def promise_of(slo: SloBody | None) -> Promise | None:
    """Return what a request is promised by itself. Raises ApiError."""
    if slo is None:
        return None
    return Promise(ttft=seconds(slo.ttft, "slo.ttft"), tpot=seconds(slo.tpot, "slo.tpot"))


def seconds(given: str | float | None, field: str) -> float:
    """Return a time in seconds, 0 for none. Raises ApiError."""
    if given is None:
        return 0.0
    try:
        return read_time(given)
    except ValueError as error:
        raise refused(f"`{field}` must be {error}.", field, "invalid") from None
