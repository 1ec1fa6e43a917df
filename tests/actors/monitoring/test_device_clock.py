"""The device's clock: what step reports add up to."""

import msgspec
import pytest

from draftwerk.actors.monitoring.device_clock import DeviceClock
from draftwerk.actors.monitoring.trace import Trace
from draftwerk.speculative.row_parts.step_report import NO_STEP, StepReport

STEP = StepReport(
    device_ms=5.0, head_ms=1.0, forward_ms=3.0, sample_ms=1.5, gap_ms=0.25, begun_s=7.0
)


def test_busy_time_is_summed_by_stage_and_gaps_are_counted():
    clock, trace = DeviceClock(), Trace()
    clock.observe(1, STEP, trace)
    clock.observe(2, STEP, trace)
    assert clock.busy_s == pytest.approx({"forward": 0.006, "sample": 0.003, "head": 0.002})
    assert clock.gaps.total == pytest.approx(0.0005)
    assert sum(clock.gaps.counts) == 2


def test_a_step_after_idleness_has_no_gap():
    clock = DeviceClock()
    clock.observe(1, StepReport(forward_ms=1.0), Trace())
    assert sum(clock.gaps.counts) == 0


def test_the_trace_shows_the_part_of_a_step_that_computed():
    clock, trace = DeviceClock(), Trace()
    clock.observe(3, STEP, trace)
    (span,) = trace.spans
    assert (span.actor, span.what) == ("device", "step 3")
    # 6 ms from 7.0 s on, of which the first half a millisecond laid the batch out.
    assert (span.begun, span.ended) == pytest.approx((7.0005, 7.006))


def test_a_report_without_a_time_is_not_drawn():
    clock, trace = DeviceClock(), Trace()
    clock.observe(1, NO_STEP, trace)
    assert not trace.spans


def test_drafting_beside_the_target_is_drawn_before_its_step():
    trace = Trace()
    DeviceClock().observe(5, msgspec.structs.replace(STEP, draft_ms=2.0), trace)
    drafting = next(span for span in trace.spans if span.actor == "draft")
    assert (drafting.begun, drafting.ended) == pytest.approx((6.998, 7.0))
    assert drafting.what == "round 5"
