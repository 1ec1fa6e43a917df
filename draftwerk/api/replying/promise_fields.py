"""What a request says of its times: `slo` and `deadline`."""

from typing import Annotated

from msgspec import Meta, Struct

from draftwerk.api.core.errors import refused
from draftwerk.speculative.slo import TIME_MAX_S, Promise, read_time

Time = (
    Annotated[str, Meta(min_length=1, max_length=32)] | Annotated[float, Meta(gt=0, le=TIME_MAX_S)]
)
"""Such as `500ms` or `2s`; a bare number is of seconds."""


class SloBody(Struct, frozen=True, forbid_unknown_fields=True):
    """What the request's reader is promised, in place of the server's `--slo`."""

    ttft: Time | None = None
    """From the request's arrival to its first token."""
    tpot: Time | None = None
    """Between two tokens of a text, on average."""


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
