"""When a replica is replaced: it has work, and does not come on with it."""

import pytest

from draftwerk.actors.devices.process import STEP_S
from draftwerk.actors.monitoring.snapshot import ActorFigures, ModelFigures, Snapshot
from draftwerk_cluster.cluster_settings import cluster_settings
from draftwerk_cluster.replica_health import stuck

STUCK = ActorFigures(progress_age_s=500.0, actor_ages_s={"verifier": 500.0})


@pytest.mark.parametrize(
    ("snapshot", "words"),
    [
        (Snapshot(), ""),
        (Snapshot(actors=ActorFigures(progress_age_s=99.0, actor_ages_s={"verifier": 99.0})), ""),
        (Snapshot(actors=ActorFigures(progress_age_s=101.0)), "no round was committed for 101 s"),
        (
            Snapshot(actors=ActorFigures(actor_ages_s={"cache": 0.0, "draft": 102.0})),
            "draft has been at one thing",
        ),
        # Its own limits end it.
        (Snapshot(actors=STUCK, models=ModelFigures(target_up=False)), ""),
    ],
)
def test_work_without_progress_is_stuck(snapshot: Snapshot, words: str) -> None:
    found = stuck(snapshot, 100.0)
    assert words in found and bool(found) == bool(words)


def test_the_engine_gives_up_on_a_step_before_the_replica_is_given_up() -> None:
    assert cluster_settings({}).stuck_s > STEP_S
