"""Acceptance over all requests that report it."""

from collections.abc import Sequence
from itertools import zip_longest

from msgspec import Struct

from draftwerk_tools.loadtest.measure.rows import RequestRow


class SpeculationSummary(Struct, frozen=True):
    """`accepted_length` is 1 + accepted tokens per step; `histogram[j]` steps accepted j tokens."""

    requests: int
    steps: int
    drafted: int
    accepted: int
    accepted_length: float | None
    accepted_share: float | None
    histogram: list[int]


def speculation(rows: Sequence[RequestRow]) -> SpeculationSummary | None:
    """Add up the requests whose answer carried draft counts; None if none did."""
    told = [row for row in rows if row.spec_steps is not None or row.spec_drafted is not None]
    if not told:
        return None
    with_steps = [row for row in told if row.spec_steps is not None]
    steps = sum(row.spec_steps or 0 for row in with_steps)
    stepped = sum(row.spec_accepted or 0 for row in with_steps)
    drafted = sum(row.spec_drafted or 0 for row in told)
    accepted = sum(row.spec_accepted or 0 for row in told)
    return SpeculationSummary(
        requests=len(told),
        steps=steps,
        drafted=drafted,
        accepted=accepted,
        accepted_length=round(1 + stepped / steps, 4) if steps else None,
        accepted_share=round(accepted / drafted, 4) if drafted else None,
        histogram=[sum(c) for c in zip_longest(*(r.spec_histogram for r in told), fillvalue=0)],
    )
