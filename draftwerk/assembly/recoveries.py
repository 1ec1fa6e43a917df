"""The recoveries of a device, reported with the engine's figures."""

from dataclasses import dataclass

from msgspec.structs import replace

from draftwerk.actors.devices.recovering_target import RecoveryStats
from draftwerk.actors.monitoring.snapshot import Snapshot
from draftwerk.actors.pipeline import EngineAttachment


@dataclass(slots=True)
class Recoveries(EngineAttachment):
    """The counts of a target that recovers by itself."""

    stats: RecoveryStats

    def report(self, snapshot: Snapshot) -> Snapshot:
        snapshot.counts.recomputed_tokens += self.stats.redone_tokens
        models = replace(snapshot.models, recoveries=self.stats.recoveries)
        return replace(snapshot, models=models)
