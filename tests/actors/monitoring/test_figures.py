"""The figures of an engine: what its actors tell of steps and texts, and moments of it."""

import anyio
import pytest

from draftwerk.actors.monitoring.figures import Figures
from draftwerk.speculative.requests.times import StageTimes
from draftwerk.speculative.rounds import Verdict
from tests.actors.loops import on_virtual_time
from tests.actors.monitoring.test_device_clock import STEP


def test_a_step_is_counted_and_drawn() -> None:
    figures = Figures()
    figures.step_ended(Verdict(round_id=7, pipeline_slot=0, decisions=(), report=STEP))
    models = figures.of_models(True, {"target": 9})
    assert models.device_busy_s["forward"] == pytest.approx(0.003)
    assert (models.target_up, models.processes, sum(models.device_gaps.counts)) == (
        True,
        {"target": 9},
        1,
    )
    assert [span.what for span in figures.trace.spans] == ["step 7"]


@on_virtual_time
async def test_a_text_has_its_stages_unless_it_was_submitted_before() -> None:
    figures = Figures()
    begun_s = anyio.current_time()
    await anyio.sleep(1.0)
    times = StageTimes(*[begun_s] * 6)
    figures.text_ended("new", times, decided_s=begun_s + 0.75)
    figures.text_ended("again", None, decided_s=begun_s)
    stages = figures.stages.copy()
    assert stages["decode"].total == pytest.approx(0.75)
    assert stages["detokenise"].total == pytest.approx(0.25)
    assert {span.actor for span in figures.trace.spans} == {"request new"}


def test_what_was_told_of_the_actors_is_of_its_moment() -> None:
    figures = Figures()
    figures.waits["cache"].observe(0.001)
    told = figures.of_actors(2, {"cache": 3}, 0.5)
    figures.waits["cache"].observe(0.001)
    assert (told.restarts, told.mailbox_depths, told.progress_age_s) == (2, {"cache": 3}, 0.5)
    assert sum(told.mailbox_waits["cache"].counts) == 1
    assert set(told.actor_ages_s.values()) == {0.0}
