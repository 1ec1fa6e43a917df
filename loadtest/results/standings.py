"""Who is fastest within each class, and by how much."""

from collections.abc import Sequence

from msgspec import Struct

from loadtest.results.curves import labels, over_load, tokens_per_s
from loadtest.results.result import Run


class Standing(Struct, frozen=True):
    """A server at one load; `ratio` is to the best of the others in its class."""

    label: str
    group: str
    load: float
    tokens_per_s: float
    ratio: float | None


def standing_table(runs: Sequence[Run]) -> list[Standing]:
    """Rank by class and load, best first; medians over repeats."""
    groups = {run.label: run.group for run in runs}
    speeds = {name: dict(over_load(runs, name, tokens_per_s)) for name in labels(runs)}
    found = [
        Standing(name, groups[name], load, speed, _ratio(name, load, groups, speeds))
        for name, by_load in speeds.items()
        for load, speed in by_load.items()
    ]
    return sorted(found, key=lambda one: (one.group, one.load, -one.tokens_per_s))


def standings(runs: Sequence[Run]) -> list[str]:
    """Return one sentence per standing that has somebody to be compared with."""
    return [
        f"{one.group or 'all'} at {one.load:g}: {one.label} {one.tokens_per_s:.1f} tok/s, "
        f"{one.ratio:.2f} x the best of the others"
        for one in standing_table(runs)
        if one.ratio is not None
    ]


def _ratio(
    name: str, load: float, groups: dict[str, str], speeds: dict[str, dict[float, float]]
) -> float | None:
    rivals = [
        by_load[load]
        for other, by_load in speeds.items()
        if other != name and groups[other] == groups[name] and load in by_load
    ]
    best = max(rivals, default=0.0)
    return speeds[name][load] / best if best else None
