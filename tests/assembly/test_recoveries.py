"""A device's recoveries are among the engine's figures."""

from draftwerk.actors.devices.recovering_target import RecoveryStats
from draftwerk.actors.monitoring.snapshot import Snapshot
from draftwerk.assembly.recoveries import Recoveries
from draftwerk.speculative.load.stats import SchedulerStats


def test_what_is_computed_again_after_a_loss_counts_as_recomputed() -> None:
    stats = RecoveryStats(recoveries=2, redone_tokens=30)
    found = Recoveries(stats).report(Snapshot(counts=SchedulerStats(recomputed_tokens=5)))
    assert (found.models.recoveries, found.counts.recomputed_tokens) == (2, 35)
