"""Who is fastest within each class, and by how much."""

from statistics import median

from msgspec import Struct

from draftwerk.loadtest.results.curves import labels, level, over_load, tokens_per_s
from draftwerk.loadtest.results.result import Run, Sweep
from draftwerk.loadtest.results.table import aligned, number


class StandingFigure(Struct, frozen=True):
    """A value, and how many times as good it is as the best rival's; None without a rival."""

    value: float
    ratio: float | None


class Standing(Struct, frozen=True):
    """One server in its class, medians over repeats: by column, what was measured."""

    label: str
    group: str
    drafts: str
    figures: dict[str, StandingFigure]


def standing_table(sweep: Sweep) -> list[Standing]:
    """Return a line per server, class by class, the fastest at the lowest load first."""
    columns = _columns(sweep)
    known = {run.label: run for run in [*sweep.runs, *sweep.prefill]}
    found = [
        Standing(
            label,
            run.group,
            run.drafts,
            {
                name: StandingFigure(
                    values[label], _ratio(run, values, known, name.startswith(LESS_IS_BETTER))
                )
                for name, values in columns.items()
                if label in values
            },
        )
        for label, run in known.items()
    ]
    return sorted(found, key=lambda one: (one.group, -_first_value(one)))


def standing_lines(sweep: Sweep) -> list[list[str]]:
    """Return a head and one line per server; each figure with its ratio in brackets."""
    names = list(_columns(sweep))
    lines = [
        [
            one.label,
            one.group or "-",
            one.drafts or "-",
            *(_cell(one.figures.get(name)) for name in names),
        ]
        for one in standing_table(sweep)
    ]
    return [["server", "class", "drafts", *names], *lines]


def standing_text(sweep: Sweep) -> str:
    """Return the table for a terminal."""
    return f"{aligned(standing_lines(sweep))}\n{EXPLANATION}"


def contested(sweep: Sweep) -> bool:
    """Whether servers of different classes were measured, and not one server alone."""
    return any(run.group for run in sweep.runs)


PREFILL = "prefill tok/s"
LESS_IS_BETTER = "TTFT p50 ms at "
EXPLANATION = (
    "In brackets: how many times as good as the best server of another family in the class."
)


def _columns(sweep: Sweep) -> dict[str, dict[str, float]]:
    """Return value by label, by column."""
    loads = sorted({run.load or 0.0 for run in sweep.runs})
    names = labels(sweep.runs)
    speeds = {name: dict(over_load(sweep.runs, name, tokens_per_s)) for name in names}
    firsts = {name: dict(over_load(sweep.runs, name, _ttft)) for name in names}
    columns = {f"tok/s at {load:g}": _at(load, speeds) for load in loads}
    if loads:
        columns[f"{LESS_IS_BETTER}{loads[0]:g}"] = _at(loads[0], firsts)
    reads = {
        label: dict(over_load(sweep.prefill, label, prefill_per_s))
        for label in labels(sweep.prefill)
    }
    if read := _at(1.0, reads):
        columns[PREFILL] = read
    return columns


def prefill_per_s(run: Run) -> float | None:
    """Return prompt tokens over the time to the first token, median over requests."""
    speeds = [
        (row.prompt_tokens - (row.cached_tokens or 0)) / first_s
        for row in run.rows
        if row.ok and not row.warmup and row.prompt_tokens and (first_s := row.ttft_s(False))
    ]
    return median(speeds) if speeds else None


def _ttft(run: Run) -> float | None:
    return level(run.summary.latencies.ttft, "p50")


def _at(load: float, by_label: dict[str, dict[float, float]]) -> dict[str, float]:
    return {label: by_load[load] for label, by_load in by_label.items() if load in by_load}


def _ratio(
    run: Run, values: dict[str, float], known: dict[str, Run], less_is_better: bool
) -> float | None:
    rivals = [
        values[label]
        for label, other in known.items()
        if label in values and other.group == run.group and _family(other) != _family(run)
    ]
    if not rivals or not all(rivals) or not values[run.label]:
        return None
    if less_is_better:
        return min(rivals) / values[run.label]
    return values[run.label] / max(rivals)


def _family(run: Run) -> str:
    return run.family or run.label


def _first_value(one: Standing) -> float:
    return next((figure.value for figure in one.figures.values()), 0.0)


def _cell(figure: StandingFigure | None) -> str:
    if figure is None:
        return "-"
    ratio = "" if figure.ratio is None else f" ({figure.ratio:.2f})"
    return number(figure.value) + ratio
