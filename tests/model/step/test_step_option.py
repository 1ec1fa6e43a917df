"""A step's decisions are added to, and a row that fails fails alone."""

from types import SimpleNamespace
from typing import Any

from draftwerk.model.batch.builder import BatchBuilder
from draftwerk.model.step.target_runner import StepOption, StepProgress
from draftwerk.speculative.rounds import Decision, Round
from draftwerk.speculative.row_parts.decision_options import DecisionOptions


def progress() -> tuple[StepProgress, list[Any]]:
    walks: list[Any] = [SimpleNamespace(plan=SimpleNamespace(number=number)) for number in (0, 1)]
    step = StepProgress(
        round=Round(round_id=1, pipeline_slot=0, rows=()),
        builder=BatchBuilder(4),
        decisions=[Decision(tokens=(1,)), Decision(tokens=(2,))],
        walks=[*walks],
    )
    return step, walks


def test_what_is_told_of_a_row_is_added() -> None:
    step, walks = progress()
    step.tell_option(walks[1].plan, margin=0.5)
    assert step.decisions == [
        Decision(tokens=(1,)),
        Decision(tokens=(2,), options=DecisionOptions(margin=0.5)),
    ]


def test_a_row_that_fails_takes_no_other_with_it() -> None:
    step, walks = progress()
    step.fail(walks[0], "odd")
    assert step.decisions == [Decision(error="odd"), Decision(tokens=(2,))]
    assert step.walks == walks[1:]


def test_an_option_that_overrides_nothing_changes_nothing() -> None:
    step, _ = progress()
    option, nothing = StepOption(), Any
    row: Any = nothing
    assert option.lay_out(step.builder, row, row) is None
    option.report(step)
    assert step.decisions == [Decision(tokens=(1,)), Decision(tokens=(2,))]
