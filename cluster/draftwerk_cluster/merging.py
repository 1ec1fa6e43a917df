"""The snapshots of all replicas as one: counters and sizes added, ages at their worst."""

from collections.abc import Iterable, Mapping

from draftwerk.actors.monitoring.snapshot import (
    ActorFigures,
    ClusterFigures,
    ModelFigures,
    Snapshot,
)
from draftwerk.actors.monitoring.sums import added, counted, summed
from draftwerk.speculative.load.stats import SchedulerLoad


def merged(
    replicas: Mapping[str, Snapshot],
    *,
    open_replicas: tuple[str, ...],
    draining: bool,
    moves: dict[str, int],
) -> Snapshot:
    """Return one snapshot of all replicas, with each one's own in `cluster.replicas`."""
    found = list(replicas.values())
    actors = [each.actors for each in found]
    processes = {
        f"{replica_id} {name}": process
        for replica_id, each in replicas.items()
        for name, process in each.models.processes.items()
    }
    gauges = Snapshot(
        load=summed(SchedulerLoad, [each.load for each in found]),
        actors=ActorFigures(
            mailbox_depths=added(each.mailbox_depths for each in actors),
            progress_age_s=max((each.progress_age_s for each in actors), default=0.0),
            actor_ages_s=_worst(each.actor_ages_s for each in actors),
        ),
        models=ModelFigures(target_up=bool(open_replicas), processes=processes),
        store=added(each.store for each in found),
        draining=draining,
        cluster=ClusterFigures(moves=moves, replicas=dict(replicas), open_replicas=open_replicas),
    )
    return counted(found, gauges)


def _worst(ages: Iterable[Mapping[str, float]]) -> dict[str, float]:
    worst: dict[str, float] = {}
    for each in ages:
        for word, value in each.items():
            worst[word] = max(worst.get(word, 0.0), value)
    return worst
