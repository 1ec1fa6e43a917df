"""Two results side by side, with how sure the difference is."""

from collections.abc import Callable, Sequence
from random import Random
from statistics import median

from msgspec import Struct

from draftwerk_tools.loadtest.measure.rows import RequestRow
from draftwerk_tools.loadtest.results.result import Result, Run
from draftwerk_tools.loadtest.results.table import aligned, number

RESAMPLES = 400
PER_REQUEST: dict[str, Callable[[RequestRow], float | None]] = {
    "TTFT p50 ms": lambda row: row.ttft_s(),
    "TPOT p50 ms": lambda row: row.tpot_s(),
    "E2E p50 ms": lambda row: row.e2e_s(),
}


class Change(Struct, frozen=True):
    """A metric before and after; the interval is of the ratio, from resampled requests."""

    name: str
    before: float
    after: float
    low: float | None = None
    high: float | None = None

    @property
    def ratio(self) -> float | None:
        return self.after / self.before if self.before else None

    @property
    def clear(self) -> bool:
        """Whether chance among the requests alone does not explain the change."""
        return self.low is not None and self.high is not None and not self.low <= 1 <= self.high


def compare_runs(before: Run, after: Run) -> list[Change]:
    """Return the changes of rates and of median latencies."""
    flows = (before.summary.throughput, after.summary.throughput)
    changes = [
        Change("requests/s", *(flow.requests_per_s for flow in flows)),
        Change("output tok/s", *(flow.output_tokens_per_s for flow in flows)),
    ]
    for name, value in PER_REQUEST.items():
        change = _latency_change(name, _values(before, value), _values(after, value))
        changes += [change] if change else []
    return changes


def same_texts(before: Run, after: Run) -> tuple[int, int]:
    """Return how many requests that both runs asked alike were answered alike, and how many."""
    if (
        before.options.workload != after.options.workload
        or before.options.seed != after.options.seed
        or before.options.skip != after.options.skip
    ):
        return 0, 0
    texts = {(row.session, row.turn): row.text_hash for row in before.rows if row.ok}
    both = [row for row in after.rows if row.ok and (row.session, row.turn) in texts]
    return sum(row.text_hash == texts[row.session, row.turn] for row in both), len(both)


def comparison_text(before: Result, after: Result) -> str:
    """Return tables of changes; runs of sweeps are paired by label and load."""
    pairs = _pairs(before, after)
    if not pairs:
        raise ValueError("the two results have no label and load in common")
    return "\n\n".join(_pair_text(name, *pair) for name, pair in pairs.items())


def _pairs(before: Result, after: Result) -> dict[str, tuple[Run, Run]]:
    if isinstance(before, Run) and isinstance(after, Run):
        return {"": (before, after)}
    first, second = _keyed(before), _keyed(after)
    return {name: (first[name], second[name]) for name in first if name in second}


def _keyed(result: Result) -> dict[str, Run]:
    runs = [result] if isinstance(result, Run) else result.runs
    return {f"{run.label} {run.load or 0:g} (repeat {run.repeat})".strip(): run for run in runs}


def _pair_text(name: str, before: Run, after: Run) -> str:
    head = ["", "before", "after", "after/before", "95 % interval", ""]
    lines = [head, *(_cells(change) for change in compare_runs(before, after))]
    same, both = same_texts(before, after)
    texts = [f"same text: {same} of {both} answers"] if both else []
    return "\n".join([*([name] if name else []), aligned(lines), *texts])


def _cells(change: Change) -> list[str]:
    interval = "" if change.low is None else f"{change.low:.2f} to {number(change.high, 2)}"
    return [
        change.name,
        number(change.before, 2),
        number(change.after, 2),
        number(change.ratio, 3),
        interval,
        "clear" if change.clear else "",
    ]


def _values(run: Run, value: Callable[[RequestRow], float | None]) -> list[float]:
    found = (value(row) for row in run.rows if row.ok and not row.warmup)
    return [seconds * 1000 for seconds in found if seconds is not None]


def _latency_change(name: str, before: Sequence[float], after: Sequence[float]) -> Change | None:
    if not before or not after:
        return None
    ratios = sorted(_resampled_ratios(before, after))
    edge = round(len(ratios) * 0.025)
    low, high = (ratios[edge], ratios[-1 - edge]) if ratios else (None, None)
    return Change(name, median(before), median(after), low, high)


def _resampled_ratios(before: Sequence[float], after: Sequence[float]) -> list[float]:
    rng = Random(0)
    medians = (
        (median(rng.choices(before, k=len(before))), median(rng.choices(after, k=len(after))))
        for _ in range(RESAMPLES)
    )
    return [second / first for first, second in medians if first > 0]
