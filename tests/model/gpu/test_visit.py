"""A visit to a GPU runs what is worth most, keeps what it found, and goes on where it stopped."""

from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest

from benchmarks.gpu.stages import STAGES, TRIES_MAX, StageOutcome, VisitStage, next_stage
from benchmarks.gpu.texts import DeviceText, Parting, TextCase, compared
from benchmarks.gpu.visit import ENDED, Visit, executor
from draftwerk.speculative.requests.request import Options
from draftwerk.speculative.sampling.params import Sampling

NINE_MINUTES = 540.0


class LostMachineError(Exception):
    """The machine was taken away."""


@dataclass
class FakeDevice:
    """A device on virtual time: stages take what they are expected to, some fail or hang."""

    pace: float = 1.0
    fails: frozenset[str] = frozenset()
    hangs: frozenset[str] = frozenset()
    lost_at: str = ""
    now: float = 0.0
    ran: list[str] = field(default_factory=list[str])

    def execute(self, stage: VisitStage, limit_s: float) -> StageOutcome:
        if stage.name == self.lost_at:
            raise LostMachineError
        self.ran.append(stage.name)
        takes = float("inf") if stage.name in self.hangs else self.pace * stage.seconds
        spent = min(takes, limit_s)
        self.now += spent
        code = ENDED if takes > limit_s else int(stage.name in self.fails)
        return StageOutcome(code, spent, 1)

    def visit(self, folder: Path, seconds: float = NINE_MINUTES) -> dict[str, StageOutcome]:
        return Visit(STAGES, folder, seconds, self.execute, lambda: self.now).run()


def test_a_visit_of_nine_minutes_answers_what_is_worth_most_and_the_next_the_rest(tmp_path: Path):
    device = FakeDevice()
    outcomes = device.visit(tmp_path)
    assert device.now <= NINE_MINUTES
    assert device.ran[:5] == ["kernels", "texts", "exact", "steps-bf16", "steps-int4"]
    assert {"users", "kills", "drafts"} <= outcomes.keys()
    again = FakeDevice()
    assert again.visit(tmp_path).keys() == {stage.name for stage in STAGES}
    assert not {*again.ran} & {*device.ran}, "nothing is measured twice"


def test_a_stage_that_hangs_or_fails_costs_no_other_one(tmp_path: Path):
    device = FakeDevice(hangs=frozenset({"kernels"}), fails=frozenset({"exact"}))
    outcomes = device.visit(tmp_path, 3600.0)
    assert {name for name, one in outcomes.items() if one.code} == {"kernels", "exact"}
    assert device.ran[-2:] == ["kernels", "exact"], "they are tried again behind all others"
    assert outcomes["kernels"].tries == TRIES_MAX


def test_a_machine_that_is_taken_away_leaves_what_was_found(tmp_path: Path):
    device = FakeDevice(lost_at="steps-fp8")
    with pytest.raises(LostMachineError):
        device.visit(tmp_path)
    again = FakeDevice()
    again.visit(tmp_path)
    assert again.ran[0] == "steps-fp8"


def test_no_visit_is_longer_than_it_may_be(tmp_path: Path):
    rng = Random(1)
    names = [stage.name for stage in STAGES]
    for number in range(200):
        hangs, fails = (frozenset(rng.sample(names, rng.randint(0, 4))) for _ in range(2))
        device = FakeDevice(rng.uniform(0.2, 3.0), fails, hangs)
        seconds = rng.uniform(10, 1200)
        device.visit(tmp_path / str(number), seconds)
        assert device.now <= seconds
        assert max((device.ran.count(name) for name in names), default=0) <= TRIES_MAX


def test_what_does_not_fit_gives_way_to_what_does():
    fits = next_stage(STAGES, {}, 45.0)
    assert fits is not None and fits.name == "drafts"
    assert next_stage(STAGES, {}, 5.0) is None


def test_a_stage_is_a_process_whose_output_is_kept(tmp_path: Path):
    sleeps = VisitStage(
        "sleeps", "", ("timeit", "-n", "1", "-r", "1", "import time; time.sleep(60)"), 1
    )
    fine = VisitStage("fine", "", ("timeit", "-n", "1", "-r", "1", "print('said')"), 60)
    nothing = VisitStage("nothing", "", ("antigravity",), 1)
    run, rehearse = executor(tmp_path, smoke=False), executor(tmp_path, smoke=True)
    assert run(sleeps, 0.5).code == ENDED
    found = run(fine, 60)
    assert found.code == 0 and "said" in found.end
    assert "said" in (tmp_path / "fine.log").read_text()
    assert rehearse(nothing, 1).end == "nothing to rehearse"


def test_texts_that_part_at_a_tie_are_told_from_mistakes():
    case = TextCase("", Options(sampling=Sampling()))

    def text(plain: int, drafted: int) -> DeviceText:
        return DeviceText(case, {"plain": (plain,), "drafted": (drafted,), "together": (plain,)})

    assert compared([(text(1, 1), None), (text(2, 3), Parting(4, 0.001)), (text(2, 2), None)]) == {
        "texts": 3,
        "drafted_as_plain": 2,
        "together_as_plain": 3,
        "as_on_a_cpu": 2,
        "parted_at_a_tie": 1,
        "largest_margin": 0.001,
    }
    mistaken = compared([(text(1, 1), Parting(0, 2.5)), (text(1, 1), Parting(0, None))])
    assert (mistaken["parted_at_a_tie"], mistaken["largest_margin"]) == (0, 2.5)
