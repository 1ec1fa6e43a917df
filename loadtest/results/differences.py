"""What the variants of a sweep differ by, and whether more than chance and drift."""

import math
from collections.abc import Callable
from statistics import fmean

from msgspec import Struct

from draftwerk.loadtest.measure.student import mean_interval
from draftwerk.loadtest.results.curves import level, tokens_per_s
from draftwerk.loadtest.results.result import Run, Sweep
from draftwerk.loadtest.results.table import number

DOUBT = 0.01
"""Probability that any interval of a sweep misses, if the variants are equal."""
MARGIN = 0.02
"""A difference smaller than this is none, however sure."""
EXPLANATION = (
    "A ratio is the mean over repeats of two figures taken side by side. The intervals are "
    "Student's t, 99 % for all rows together; a difference is clear if its interval lies outside "
    f"1 ± {MARGIN:g}."
)


def _ttft(run: Run) -> float | None:
    return level(run.summary.latencies.ttft, "p50")


FIGURES: dict[str, Callable[[Run], float | None]] = {
    "tok/s": tokens_per_s,
    "TTFT p50": _ttft,
}


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
    names = sweep.variants
    loads = sorted({run.load or 0.0 for run in sweep.runs})
    logs = {
        (label, load, figure): found
        for label in names[1:]
        for load in loads
        for figure, value in FIGURES.items()
        if (found := _log_ratios(sweep, names[0], label, load, value))
    }
    return [
        _difference(label, names[0], load, figure, found, DOUBT / len(logs))
        for (label, load, figure), found in logs.items()
    ]


def difference_lines(sweep: Sweep) -> list[list[str]]:
    """Return a head and a line per difference; nothing where there is nothing to compare."""
    head = ["variant", sweep.over, "figure", "ratio", "99 % interval", ""]
    lines = [_cells(each) for each in differences(sweep)]
    return [head, *lines] if lines else []


def _log_ratios(
    sweep: Sweep, first: str, label: str, load: float, value: Callable[[Run], float | None]
) -> list[float]:
    """Return a logarithm per repeat in which both variants ran at this load."""
    runs = [run for run in sweep.runs if (run.load or 0.0) == load]
    theirs = {run.repeat: value(run) for run in runs if run.label == first}
    mine = {run.repeat: value(run) for run in runs if run.label == label}
    pairs = ((found, theirs.get(repeat)) for repeat, found in mine.items())
    return [math.log(found / base) for found, base in pairs if found and base]


def _difference(
    label: str, against: str, load: float, figure: str, logs: list[float], doubt: float
) -> Difference:
    ratio = math.exp(fmean(logs))
    if len(logs) < 2:
        return Difference(label, against, load, figure, ratio)
    low, high = (math.exp(edge) for edge in mean_interval(logs, doubt))
    return Difference(label, against, load, figure, ratio, low, high)


def _cells(each: Difference) -> list[str]:
    if each.low is None or each.high is None:
        interval, verdict = "-", "one repeat tells nothing"
    else:
        interval = f"{each.low:.2f} to {number(each.high, 2)}"
        verdict = "clear" if each.clear else "not clear"
    names = f"{each.label} / {each.against}"
    return [names, f"{each.load:g}", each.figure, f"{each.ratio:.3f}", interval, verdict]
