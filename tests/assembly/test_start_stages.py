"""Stages of a start are those of its progress, with their seconds."""

from draftwerk.assembly.start_stages import StartStages


def test_lines_on_one_subject_are_one_stage():
    times = iter((0.0, 1.5, 4.0, 4.25))
    stages = StartStages(lambda: next(times))
    for line in ("loading m: 1 of 2 GB", "loading m: 2 of 2 GB", "measuring the cost of a step"):
        stages.show(line)
    assert stages.text() == (
        "starting a process and importing 1.5 s, loading m 2.5 s, "
        "measuring the cost of a step 0.2 s"
    )
