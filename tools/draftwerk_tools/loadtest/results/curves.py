"""A sweep as curves over load, one per label, medians over its repeats."""

from collections.abc import Callable, Sequence
from statistics import median

from draftwerk_tools.loadtest.measure.knee import Point, knee
from draftwerk_tools.loadtest.measure.quantiles import Quantiles
from draftwerk_tools.loadtest.results.result import Run

Value = Callable[[Run], float | None]


def labels(runs: Sequence[Run]) -> list[str]:
    """Return the labels in order of appearance."""
    return list(dict.fromkeys(run.label for run in runs))


def over_load(runs: Sequence[Run], label: str, value: Value) -> list[tuple[float, float]]:
    """Return (load, median value) for the loads at which the value exists."""
    mine = [(run.load or 0.0, value(run)) for run in runs if run.label == label]
    loads = sorted({load for load, found in mine if found is not None})
    return [(load, median(v for at, v in mine if at == load and v is not None)) for load in loads]


def tokens_per_s(run: Run) -> float:
    return run.summary.throughput.output_tokens_per_s


def latency(name: str, level: str) -> Value:
    """Return what reads a percentile of one of a run's latencies."""

    def value(run: Run) -> float | None:
        found: Quantiles | None = getattr(run.summary.latencies, name)
        return found.at[level] if found else None

    return value


def curve(runs: Sequence[Run], label: str) -> list[Point]:
    """Return one label's latency-throughput curve, by load."""
    latencies = dict(over_load(runs, label, latency("e2e", "p50")))
    flow = dict(over_load(runs, label, tokens_per_s))
    return [Point(load, flow[load], latencies[load]) for load in latencies]


def knees(runs: Sequence[Run]) -> dict[str, float]:
    """Return the load at the knee of each label's curve, where it has one."""
    found = {label: knee(curve(runs, label)) for label in labels(runs)}
    return {label: point.load for label, point in found.items() if point}
