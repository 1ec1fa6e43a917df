"""How busy the target's device was, and how long it waited between steps while there was work."""

from dataclasses import dataclass, field

from draftwerk.actors.monitoring.histogram import Histogram
from draftwerk.actors.monitoring.trace import Trace
from draftwerk.speculative.row_parts.step_report import StepReport

GAPS_S = (
    0.00005, 0.0001, 0.00015, 0.0002, 0.0003, 0.0005, 0.00075, 0.001, 0.0015, 0.002, 0.005, 0.01,
    0.1, 1.0,
)  # fmt: skip
STAGES = ("forward", "sample", "head")


@dataclass(slots=True)
class DeviceClock:
    """Sums over the steps of all pipelines, from the reports of the process that ran them."""

    gaps: Histogram = field(default_factory=lambda: Histogram(GAPS_S))
    """Waits before steps that followed others while there was work; in seconds."""
    busy_s: dict[str, float] = field(default_factory=lambda: dict.fromkeys(STAGES, 0.0))
    """Seconds of computing, by stage of a step."""

    def observe(self, round_id: int, report: StepReport, trace: Trace) -> None:
        """Add a step, and draw it beside what the actors did."""
        if report.gap_ms is not None:
            self.gaps.observe(report.gap_ms / 1e3)
        spent = (report.forward_ms, report.sample_ms, report.head_ms)
        for stage, ms in zip(STAGES, spent, strict=True):
            self.busy_s[stage] += ms / 1e3
        if report.begun_s:
            ended_s = report.begun_s + (report.device_ms + report.head_ms) / 1e3
            begun_s = ended_s - report.busy_ms / 1e3
            trace.add("device", [(f"step {round_id}", begun_s, ended_s)])
            if report.draft_ms:
                drafted_s = report.begun_s - report.draft_ms / 1e3
                trace.add("draft", [(f"round {round_id}", drafted_s, report.begun_s)])
