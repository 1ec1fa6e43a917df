"""Processes that the package starts import this very package, and nothing beside the user."""

import subprocess
import sysconfig
from pathlib import Path

import pytest

from draftwerk.machine import child_python
from draftwerk.machine.child_python import child_environment, python_command

SAY = "import sys, draftwerk; print(draftwerk.__file__); print(*sys.path, sep='|')"


@pytest.mark.parametrize("given", ["", ":", "{more}", ":{more}", "{more}:", "::{more}::"])
def test_a_child_never_looks_in_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    here, more = tmp_path / "here", tmp_path / "more"
    here.mkdir()
    more.mkdir()
    for name in ("queue", "draftwerk", "say"):
        (here / f"{name}.py").write_text("raise SystemExit('imported')")
    (more / "say.py").write_text(SAY)
    monkeypatch.setenv("PYTHONPATH", given.format(more=more))
    # Where `more` is not on the path, the module is one of the package's own.
    module = "say" if "more" in given else "draftwerk"
    arguments = () if "more" in given else ("--version",)
    printed = subprocess.check_output(
        python_command(module, *arguments), cwd=here, env=child_environment(), text=True
    )
    if module == "say":
        file, path = printed.splitlines()
        assert Path(file).parent.parent == child_python.ROOT
        assert str(here) not in path.split("|") and "" not in path.split("|")


def test_an_installed_package_does_not_put_its_neighbours_before_the_standard_library(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(child_python, "ROOT", Path(sysconfig.get_path("purelib")).resolve())
    monkeypatch.delenv("PYTHONPATH", raising=False)
    assert "PYTHONPATH" not in child_environment()
    monkeypatch.setenv("PYTHONPATH", "/their/own")
    assert child_environment()["PYTHONPATH"] == "/their/own"


def test_openmp_waits_without_spinning_unless_the_user_says_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    assert child_environment()["OMP_WAIT_POLICY"] == "passive"
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    assert child_environment()["OMP_WAIT_POLICY"] == "active"
