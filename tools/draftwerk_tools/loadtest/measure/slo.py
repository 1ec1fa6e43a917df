"""Service-level objectives: limits a request must keep, all of them, to count."""

import re
from collections.abc import Iterable, Sequence
from typing import Literal, cast

from msgspec import Struct

from draftwerk_tools.loadtest.measure.proportion import Proportion, wilson
from draftwerk_tools.loadtest.measure.rows import RequestRow

Metric = Literal["ttft", "tpot", "e2e", "gap"]
METRICS: tuple[Metric, ...] = ("ttft", "tpot", "e2e", "gap")
OBJECTIVE = re.compile(r"\s*(\w+)\s*[=<]\s*(\d+(?:\.\d+)?)\s*(ms|s)?\s*")


class Slo(Struct, frozen=True):
    """A limit in seconds; `gap` is the longest pause between two chunks."""

    metric: Metric
    limit_s: float


class Goodput(Struct, frozen=True):
    """Requests within every limit; refusals, errors and empty texts miss, hang-ups do not count."""

    share: Proportion
    per_s: float


def parse_slo(text: str) -> Slo:
    """Read `ttft=500ms`, `e2e=10s` or `tpot<0.05`. Raises ValueError with a sentence."""
    found = OBJECTIVE.fullmatch(text)
    if not found or found[1] not in METRICS:
        raise ValueError(f"no SLO {text!r}: write {', '.join(METRICS)} = number and ms or s")
    return Slo(cast(Metric, found[1]), float(found[2]) / (1000 if found[3] == "ms" else 1))


def meets(row: RequestRow, slos: Iterable[Slo]) -> bool:
    """Whether a request ended well, with a text that kept every limit.

    Of a text that came at once only the first token and the end can be late.
    """
    if not row.ok or row.first_s is None:
        return False
    values = ((slo, _value(row, slo.metric)) for slo in slos)
    return all(value is None or value <= slo.limit_s for slo, value in values)


def goodput(rows: Sequence[RequestRow], slos: Sequence[Slo], elapsed_s: float) -> Goodput:
    """Check every request but those the plan itself cancelled."""
    judged = [row for row in rows if row.outcome != "cancelled"]
    met = sum(meets(row, slos) for row in judged)
    return Goodput(wilson(met, len(judged)), round(met / elapsed_s, 4) if elapsed_s > 0 else 0.0)


def _value(row: RequestRow, metric: Metric) -> float | None:
    match metric:
        case "ttft":
            return row.ttft_s()
        case "tpot":
            return row.tpot_s()
        case "e2e":
            return row.e2e_s()
        case "gap":
            return max(row.gaps_s(), default=None)
