"""The snapshots of all replicas as one: counters and sizes added, ages at their worst."""

from collections.abc import Iterable, Mapping
from itertools import zip_longest
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import fields

from draftwerk.actors.monitoring.device_clock import GAPS_S
from draftwerk.actors.monitoring.histogram import Histogram
from draftwerk.actors.monitoring.snapshot import (
    ActorFigures,
    ClusterFigures,
    ModelFigures,
    Snapshot,
)
from draftwerk.speculative.scheduler.stats import SchedulerLoad, SchedulerStats

T = TypeVar("T", bound=Struct)
N = TypeVar("N", int, float)


def merged(
    replicas: Mapping[str, Snapshot],
    *,
    open_replicas: tuple[str, ...],
    draining: bool,
    moves: dict[str, int],
) -> Snapshot:
    """Return one snapshot of all replicas, with each one's own in `cluster.replicas`."""
    found = list(replicas.values())
    actors, models = [each.actors for each in found], [each.models for each in found]
    processes = {
        f"{replica_id} {name}": process
        for replica_id, each in replicas.items()
        for name, process in each.models.processes.items()
    }
    return Snapshot(
        load=_sum(SchedulerLoad, [each.load for each in found]),
        counts=_sum(SchedulerStats, [each.counts for each in found]),
        actors=ActorFigures(
            restarts=sum(each.restarts for each in actors),
            mailbox_depths=_added(each.mailbox_depths for each in actors),
            mailbox_waits=_histograms([each.mailbox_waits for each in actors]),
            progress_age_s=max((each.progress_age_s for each in actors), default=0.0),
            actor_ages_s=_worst(each.actor_ages_s for each in actors),
        ),
        models=ModelFigures(
            target_up=bool(open_replicas),
            processes=processes,
            recoveries=sum(each.recoveries for each in models),
            device_busy_s=_added(each.device_busy_s for each in models),
            device_gaps=_histogram([each.device_gaps for each in models], GAPS_S),
        ),
        store=_added(each.store for each in found),
        request_stages=_histograms([each.request_stages for each in found]),
        audits=_added(each.audits for each in found),
        draining=draining,
        cluster=ClusterFigures(moves=moves, replicas=dict(replicas), open_replicas=open_replicas),
    )


def _sum(kind: type[T], found: list[T]) -> T:
    """Return counters with each field added: numbers, numbers by word, numbers by position."""
    total: dict[str, Any] = {}
    for field in fields(kind):
        values = [getattr(each, field.name) for each in found]
        if field.type in (int, float):
            total[field.name] = sum(values)
        elif field.type == list[int]:
            total[field.name] = [*map(sum, zip_longest(*values, fillvalue=0))]
        else:
            total[field.name] = _added(values)
    return kind(**total)


def _added(counters: Iterable[Mapping[str, N]]) -> dict[str, N]:
    total: dict[str, N] = {}
    for each in counters:
        for word, value in each.items():
            total[word] = total[word] + value if word in total else value
    return total


def _worst(ages: Iterable[Mapping[str, float]]) -> dict[str, float]:
    worst: dict[str, float] = {}
    for each in ages:
        for word, value in each.items():
            worst[word] = max(worst.get(word, 0.0), value)
    return worst


def _histogram(found: list[Histogram], bounds: tuple[float, ...]) -> Histogram:
    total = Histogram(bounds)
    for each in found:
        if each.bounds == bounds:
            total.counts = [sum(pair) for pair in zip(total.counts, each.counts, strict=True)]
            total.total += each.total
    return total


def _histograms(found: list[dict[str, Histogram]]) -> dict[str, Histogram]:
    bounds = {name: waits.bounds for each in found for name, waits in each.items()}
    return {
        name: _histogram([each[name] for each in found if name in each], limits)
        for name, limits in bounds.items()
    }
