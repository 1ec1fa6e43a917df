"""Ranks as processes: the same verdicts as one process, and no process that outlives another."""

import os
import signal
from collections.abc import Generator
from pathlib import Path

import pytest
from msgspec.structs import replace

from draftwerk.machine.host import PROC
from draftwerk.model.checkpoint.model_options import ModelOptions
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.process.build import build
from draftwerk.model.process.built import Built
from draftwerk.model.process.measuring import StepSize
from draftwerk.model.process.step_trials import verification
from draftwerk.model.step.options.step_options import target_runner
from draftwerk.speculative.rounds import Decision
from tests.support.tiny_models import save_tiny
from tests.support.waiting import wait_until

SIZES = (StepSize(24, 0, prompt=True), StepSize(8, 16), StepSize(16, 16, 4))


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tiny")
    save_tiny(path, "qwen2", num_hidden_layers=3)
    return path


def options(directory: Path, attention: str = "native") -> ModelOptions:
    return ModelOptions(
        source=str(directory),
        block_count=32,
        block_size=8,
        threads=1,
        measures=False,
        exact=True,
        attention=attention,
    )


def verdicts(built: Built) -> list[tuple[Decision, ...]]:
    runner = target_runner(built.parts, 4)
    return [runner.step(verification(size, 8)).decisions for size in SIZES]


@pytest.fixture(scope="module")
def group(directory: Path) -> Generator[Built]:
    """Two stages: one more process beside this one, as each takes seconds to import torch."""
    built = build(replace(options(directory), pipeline_parallel=2))
    yield built
    assert built.group is not None
    built.group.lose("the tests are over")


def is_running(process_id: int) -> bool:
    return (PROC / str(process_id)).exists()


def test_a_group_says_what_one_process_says(directory: Path, group: Built) -> None:
    assert verdicts(group) == verdicts(build(options(directory)))


def test_so_does_one_in_torch(directory: Path) -> None:
    alone = options(directory, "padded")
    built = build(replace(alone, tensor_parallel=2))
    assert verdicts(built) == verdicts(build(alone))
    assert built.group is not None
    built.group.lose("the tests are over")


def test_a_killed_rank_takes_the_group_with_it(group: Built) -> None:
    assert group.group is not None
    lost: list[str] = []
    group.group.on_loss(lost.append)
    processes = group.group.process_ids
    assert sorted(processes) == [1]
    os.kill(processes[1], signal.SIGKILL)
    with pytest.raises(ValueError, match="rank"):
        verdicts(group)
    wait_until(lambda: lost and not any(map(is_running, processes.values())))
    assert "rank 1" in lost[0]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"pipeline_parallel": 4}, "pipeline_parallel 4: the model has 3 layers"),
        ({"tensor_parallel": 5}, "tensor_parallel 5: the model has 4 attention heads"),
    ],
)
def test_what_cannot_be_divided_is_refused_before_any_process_starts(
    directory: Path, changes: dict[str, int], words: str
) -> None:
    with pytest.raises(Refused, match=words):
        build(replace(options(directory), **changes))


def test_segments_are_not_reused_where_a_model_is_divided(directory: Path, group: Built) -> None:
    assert build(options(directory)).blends
    assert group.parts.turn_slots is None and not group.blends
