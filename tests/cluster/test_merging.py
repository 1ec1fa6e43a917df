"""The snapshots of replicas as one: counters added, ages at their worst."""

from draftwerk.actors.monitoring.snapshot import ActorFigures, ModelFigures, Snapshot
from draftwerk.speculative.load.stats import SchedulerLoad, SchedulerStats
from draftwerk_cluster.merging import merged

LOAD = SchedulerLoad(running=1, waiting=2, blocks_total=3, blocks_used=4, blocks_cached=5)


def counts(rounds: int, positions: list[int]) -> SchedulerStats:
    return SchedulerStats(
        rounds=rounds,
        device_ms=0.5,
        accepted_by_position=positions,
        drafts_by_source={"ngram": rounds},
    )


def replica(rounds: int, positions: list[int], age_s: float) -> Snapshot:
    return Snapshot(
        load=LOAD,
        counts=counts(rounds, positions),
        actors=ActorFigures(
            restarts=1,
            mailbox_depths={"cache": 2},
            progress_age_s=age_s,
            actor_ages_s={"verifier": 1 / age_s},
        ),
        models=ModelFigures(processes={"target": rounds}, device_busy_s={"forward": 0.25}),
        store={"hits": 3.0},
        audits={"equal": rounds},
    )


def test_counters_are_added_and_ages_are_at_their_worst() -> None:
    replicas = {"a": replica(7, [3, 1], 2.0), "b": replica(8, [1], 4.0)}
    both = merged(replicas, open_replicas=("a",), draining=False, moves={"lost": 1})
    assert both.load == SchedulerLoad(
        running=2, waiting=4, blocks_total=6, blocks_used=8, blocks_cached=10
    )
    assert both.counts == SchedulerStats(
        rounds=15,
        device_ms=1.0,
        accepted_by_position=[4, 1],
        drafts_by_source={"ngram": 15},
    )
    assert (both.actors.restarts, both.actors.mailbox_depths) == (2, {"cache": 4})
    assert both.actors.progress_age_s == 4.0 and both.actors.actor_ages_s == {"verifier": 0.5}
    assert both.models.processes == {"a target": 7, "b target": 8}
    assert both.models.device_busy_s == {"forward": 0.5}
    assert (both.store, both.audits) == ({"hits": 6.0}, {"equal": 15})
    assert both.cluster.moves == {"lost": 1} and both.cluster.replicas == replicas


def test_no_replicas_make_an_empty_snapshot_that_serves_nothing() -> None:
    none = merged({}, open_replicas=(), draining=True, moves={})
    assert none == Snapshot(models=ModelFigures(target_up=False), draining=True)
