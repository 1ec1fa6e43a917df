"""Measurements of the actors' work, which no actor reads: for /metrics, /trace and a client."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

import anyio

from draftwerk.actors.monitoring.device_clock import DeviceClock
from draftwerk.actors.monitoring.histogram import WAITS_S, Histogram
from draftwerk.actors.monitoring.request_stages import RequestStages, stage_spans
from draftwerk.actors.monitoring.snapshot import ActorFigures, ModelFigures
from draftwerk.actors.monitoring.trace import Trace
from draftwerk.speculative.load.stats import SchedulerStats
from draftwerk.speculative.requests.times import StageTimes
from draftwerk.speculative.rounds import Verdict


@dataclass(slots=True)
class Figures:
    """Counters and histograms of an engine; they go on counting after a crash."""

    trace: Trace = field(default_factory=Trace)
    counts: SchedulerStats = field(default_factory=SchedulerStats)
    waits: dict[str, Histogram] = field(
        default_factory=lambda: defaultdict[str, Histogram](lambda: Histogram(WAITS_S))
    )
    """How long messages were in each mailbox, by the name of its reader."""
    device_clock: DeviceClock = field(default_factory=DeviceClock)
    stages: RequestStages = field(default_factory=RequestStages)

    def step_ended(self, verdict: Verdict) -> None:
        """Count a step of the target, and draw it."""
        self.device_clock.observe(verdict.round_id, verdict.report, self.trace)

    def text_ended(self, request_id: str, times: StageTimes | None, decided_s: float) -> None:
        """Count the stages of a text, and draw them; none of one that was submitted before."""
        if times is not None:
            spans = stage_spans(times, decided_s, anyio.current_time())
            self.stages.observe(spans)
            self.trace.add(f"request {request_id}", spans)

    def of_actors(
        self, restarts: int, mailbox_depths: dict[str, int], progress_age_s: float
    ) -> ActorFigures:
        """Return how the actors and their mailboxes fare."""
        return ActorFigures(
            restarts=restarts,
            mailbox_depths=mailbox_depths,
            mailbox_waits={name: waits.copy() for name, waits in self.waits.items()},
            progress_age_s=progress_age_s,
            actor_ages_s=self.trace.ages_s(),
        )

    def of_models(self, target_up: bool, processes: Mapping[str, int | None]) -> ModelFigures:
        """Return how the models' devices and processes fare."""
        return ModelFigures(
            target_up=target_up,
            processes=dict(processes),
            device_busy_s=dict(self.device_clock.busy_s),
            device_gaps=self.device_clock.gaps.copy(),
        )
