"""What a request may say of its times."""

from typing import Annotated

from msgspec import Meta, Struct

from draftwerk.speculative.slo import TIME_MAX_S

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
