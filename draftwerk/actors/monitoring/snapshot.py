"""The engine's state and counters at one moment, each part made by its owner."""

import msgspec

from draftwerk.actors.monitoring.device_clock import GAPS_S
from draftwerk.actors.monitoring.histogram import Histogram
from draftwerk.speculative.load.stats import SchedulerLoad, SchedulerStats


class ActorFigures(msgspec.Struct, frozen=True, kw_only=True):
    """How the actors and their mailboxes fare."""

    restarts: int = 0
    mailbox_depths: dict[str, int] = {}
    mailbox_waits: dict[str, Histogram] = {}
    """How long messages were in each mailbox, in seconds."""
    progress_age_s: float = 0.0
    """Seconds since the last committed round while work is pending; 0 when idle."""
    actor_ages_s: dict[str, float] = {}
    """How long each actor has been at the work it is doing; 0 for one that waits."""


class ModelFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The models' devices and processes."""

    target_up: bool = True
    """Whether the target's device is there: not while it is started again."""
    processes: dict[str, int | None] = {}
    """Ids of the model processes by what they are for; None for one that is away."""
    recoveries: int = 0
    """Model processes replaced while every sequence and its KV stayed."""
    device_busy_s: dict[str, float] = {}
    """Seconds that the target's device was computing, by stage of a step."""
    device_gaps: Histogram = Histogram(GAPS_S)
    """How long it waited between steps while there was work, in seconds."""


class ClusterFigures(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster's replicas; empty for one engine."""

    moves: dict[str, int] = {}
    """Streams that went on at another replica, by why."""
    replicas: dict[str, "Snapshot"] = {}
    """The parts that the sums in the others were made from."""
    open_replicas: tuple[str, ...] = ()
    """Replicas that new requests go to."""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """For /ready and /metrics; counters count since start."""

    load: SchedulerLoad = SchedulerLoad()
    counts: SchedulerStats = msgspec.field(default_factory=SchedulerStats)
    actors: ActorFigures = ActorFigures()
    models: ModelFigures = ModelFigures()
    store: dict[str, float] = {}
    """Counters of tier two; empty where there is none."""
    request_stages: dict[str, Histogram] = {}
    """Seconds of each stage of finished choices, by stage."""
    audits: dict[str, int] = {}
    """Finished requests decoded again, by outcome: equal, token, length, failed."""
    draining: bool = False
    cluster: ClusterFigures = ClusterFigures()
