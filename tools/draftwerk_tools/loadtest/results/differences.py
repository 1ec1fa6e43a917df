"""The differences of a sweep's variants, and whether more than chance and drift."""

import math
from statistics import fmean

from msgspec import Struct

from draftwerk_tools.loadtest.measure.student import Spread, mean_interval, pooled
from draftwerk_tools.loadtest.results.curves import Value, latency, tokens_per_s
from draftwerk_tools.loadtest.results.result import Sweep
from draftwerk_tools.loadtest.results.table import number

DOUBT = 0.003
"""Probability that any interval of a sweep misses, if the variants are equal."""
MARGIN = 0.02
"""A difference smaller than this is none, however sure."""
EXPLANATION = (
    "A ratio is the mean over repeats of two figures taken side by side. The intervals are "
    "Student's t, 99.7 % for all rows together, with the spread of a figure over all loads; a "
    f"difference is clear if its interval lies outside 1 ± {MARGIN:g}."
)


FIGURES: dict[str, Value] = {"tok/s": tokens_per_s, "TTFT p50": latency("ttft", "p50")}


class Difference(Struct, frozen=True):
    """One figure of a variant at one load, over that of the first variant."""

    label: str
    against: str
    load: float
    figure: str
    ratio: float
    low: float | None = None
    high: float | None = None

    @property
    def clear(self) -> bool:
        if self.low is None or self.high is None:
            return False
        return self.low > 1 + MARGIN or self.high < 1 - MARGIN


def differences(sweep: Sweep) -> list[Difference]:
    """Return a line per later variant, load and figure; none for a sweep of one variant."""
    logs = {
        (label, figure): by_load
        for label in sweep.variants[1:]
        for figure, value in FIGURES.items()
        if (by_load := _log_ratios(sweep, sweep.variants[0], label, value))
    }
    doubt = DOUBT / max(1, sum(map(len, logs.values())))
    return [
        _difference(sweep.variants[0], label, figure, load, found, pooled(by_load.values()), doubt)
        for (label, figure), by_load in logs.items()
        for load, found in by_load.items()
    ]


def difference_lines(sweep: Sweep) -> list[list[str]]:
    """Return a head and a line per difference; nothing where there is nothing to compare."""
    head = ["variant", sweep.over, "figure", "ratio", "99.7 % interval", ""]
    lines = [_cells(each) for each in differences(sweep)]
    return [head, *lines] if lines else []


def _log_ratios(sweep: Sweep, first: str, label: str, value: Value) -> dict[float, list[float]]:
    """Return by load a logarithm per repeat in which both variants ran."""
    figures = {(run.label, run.load or 0.0, run.repeat): value(run) for run in sweep.runs}
    found: dict[float, list[float]] = {}
    for (name, load, repeat), mine in sorted(figures.items()):
        theirs = figures.get((first, load, repeat))
        if name == label and mine and theirs:
            found.setdefault(load, []).append(math.log(mine / theirs))
    return found


def _difference(
    against: str,
    label: str,
    figure: str,
    load: float,
    logs: list[float],
    spread: Spread,
    doubt: float,
) -> Difference:
    ratio = math.exp(fmean(logs))
    if not spread.freedom:
        return Difference(label, against, load, figure, ratio)
    low, high = (math.exp(edge) for edge in mean_interval(logs, spread, doubt))
    return Difference(label, against, load, figure, ratio, low, high)


def _cells(each: Difference) -> list[str]:
    if each.low is None or each.high is None:
        interval, verdict = "-", "one repeat tells nothing"
    else:
        interval = f"{each.low:.2f} to {number(each.high, 2)}"
        verdict = "clear" if each.clear else "not clear"
    names = f"{each.label} / {each.against}"
    return [names, f"{each.load:g}", each.figure, f"{each.ratio:.3f}", interval, verdict]
