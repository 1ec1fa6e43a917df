"""The stages of a visit to a GPU, in the order of their worth, and which of them comes next."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct

TRIES_MAX = 2


class VisitStage(NamedTuple):
    """One thing to find out, by one command."""

    name: str
    question: str
    command: tuple[str, ...]
    """Behind `python -m`."""
    seconds: float
    """What it probably takes, its start included."""
    smoke: tuple[str, ...] = ()
    """The same at toy sizes on a CPU; empty where there is nothing to rehearse."""


class StageOutcome(Struct, frozen=True):
    """What came of a stage."""

    code: int
    """The command's exit status; -9 where its time was up."""
    seconds: float
    tries: int
    end: str = ""
    """The last lines of what it printed."""


def part(name: str, *options: str, smoke: bool = True) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return a part of `benchmarks.gpu` as a command, and as one that a CPU can run."""
    command = ("benchmarks.gpu", name, *options)
    return command, (*command, "--smoke") if smoke else ()


def stage(
    name: str,
    question: str,
    seconds: float,
    commands: tuple[tuple[str, ...], tuple[str, ...]],
) -> VisitStage:
    return VisitStage(name, question, commands[0], seconds, commands[1])


LOAD = ("benchmarks.speed.load", "--device")
USERS = ("--users", "1", "16", "64", "--repeats", "1")
FEW_USERS = ("--users", "1", "2", "--repeats", "1", "--count", "1", "--tokens", "8")
KILLS = "benchmarks.reliability.kills"
FEW_KILLS = ("--count", "1", "--streams", "2", "--tokens", "48")
STAGES = (
    stage("kernels", "every kernel beside its twin and its floor", 60, part("kernels")),
    stage("texts", "texts of the default model as on a CPU, up to ties", 60, part("texts")),
    stage("exact", "one text in every way, with --exact", 60, part("texts", "--exact")),
    stage("steps-bf16", "step beside its floor, 8B, bf16", 50, part("steps")),
    stage("steps-int4", "the same in int4", 50, part("steps", "--dtype", "int4")),
    stage("steps-fp8", "the same in fp8", 50, part("steps", "--dtype", "fp8", smoke=False)),
    stage("drafts", "chains of a draft model, trees of a draft head", 40, part("drafts")),
    VisitStage(
        "users",
        "1, 16 and 64 users of the default model, drafts on and off",
        (*LOAD, "cuda", *USERS),
        80,
        (*LOAD, "cpu", *FEW_USERS),
    ),
    VisitStage(
        "kills",
        "texts and pauses when the model process is killed",
        (KILLS, "--count", "3", "--", "--device", "cuda"),
        70,
        (KILLS, *FEW_KILLS, "--", "--device", "cpu"),
    ),
    stage("steps-w8a8", "the step in w8a8", 50, part("steps", "--dtype", "w8a8", smoke=False)),
    stage(
        "texts-stored",
        "texts of the default model in its file's own blocks",
        60,
        part("texts", "--dtype", "stored", smoke=False),
    ),
    stage("steps-exact", "what --exact costs", 50, part("steps", "--exact")),
    VisitStage(
        "tests",
        "the tests of kernels and steps, compiled for the card",
        ("pytest", "-q", "--maxfail=20", "tests/model/gpu"),
        120,
    ),
    VisitStage(
        "cores",
        "products and steps of the default model on its CPU's cores",
        ("benchmarks.compare", "."),
        90,
    ),
)
"""What decides most comes first: a visit may end at any time, and goes on at the next."""


def next_stage(
    stages: Sequence[VisitStage], outcomes: Mapping[str, StageOutcome], left_s: float
) -> VisitStage | None:
    """Return what to run in the time left: what was never tried before what failed."""
    fits = [each for each in stages if each.seconds <= left_s]
    untried = (each for each in fits if each.name not in outcomes)
    failed = (
        each
        for each in fits
        if each.name in outcomes
        and outcomes[each.name].code
        and outcomes[each.name].tries < TRIES_MAX
    )
    return next(untried, None) or next(failed, None)
