"""Whole starts and their rounds, launched as on a card, but for the running of the kernels.

Binder, specialisation, compiler, shared memory and grids are Triton's own: what none of the
interpreter's tests goes through.
"""

import re

import pytest

pytest.importorskip("triton", reason="Triton is not installed")

from tests.model.gpu.support import rehearsal
from tests.model.gpu.support.compiling import output_of

MODULE = rehearsal.__name__
CASES = ("default:bf16+drafts", "default:stored", "8b:bf16")
OTHERS = (
    "default:bf16+exact",
    "8b:bf16+exact",
    "8b:bf16+drafts",
    "8b:fp8+fp8",
    *(f"8b:{dtype}" for dtype in ("int4", "int8", "w8a8")),
    *(f"8b:{dtype}+exact" for dtype in ("int4", "int8", "w8a8")),
)
MISTAKES = {
    "a compile in a capture": "a kernel is compiled inside a capture",
    "an empty grid": "attend_kernel has an empty grid",
    "a form that no start compiles": "a kernel is compiled after the start",
    "an argument called params": "failed to specialize argument of type: dict",
}


def outcome_of(config: pytest.Config, case: str) -> str:
    """Return what a case came to; those of every run share a process, and what it imports."""
    shared = (*CASES, *MISTAKES)
    cases = shared if case in shared else (case,)
    lines = output_of(config, MODULE, *cases).splitlines()
    return lines[cases.index(case)].removeprefix(f"{case}: ")


@pytest.mark.parametrize(
    "case", [*CASES, *(pytest.param(case, marks=pytest.mark.grid) for case in OTHERS)]
)
def test_a_start_and_its_rounds_launch(case: str, pytestconfig: pytest.Config):
    """All kernels are compiled at the start, none twice for the same, and none in a capture."""
    printed = outcome_of(pytestconfig, case)
    assert re.match(r"\d+ forms, \d+ launches: ", printed), printed
    for kernel in ("add_norm_kernel", "attend_kernel", "keyed_kernel", "compact_kernel"):
        assert kernel in printed
    assert ("follow_kernel" in printed) == ("drafts" in case)


def test_mistakes_in_launches_are_noticed(pytestconfig: pytest.Config):
    for name, reason in MISTAKES.items():
        assert reason in outcome_of(pytestconfig, name)
