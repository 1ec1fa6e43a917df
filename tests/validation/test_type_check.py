"""Types are checked again whenever what decides the verdict has changed."""

import subprocess
from pathlib import Path

import pytest

from validation import type_check


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty checkout, the working directory."""
    monkeypatch.chdir(tmp_path)
    subprocess.run(["git", "init", "-q"], check=True)
    (tmp_path / "one.py").write_text("a = 1\n")
    return tmp_path


def test_what_pyright_reads_decides(checkout: Path) -> None:
    seen = [type_check.digest()]
    for change in (
        lambda: (checkout / "one.py").write_text("a = 2\n"),
        lambda: (checkout / "two.pyi").write_text("a: int\n"),
        lambda: (checkout / "two.pyi").rename(checkout / "three.pyi"),
        lambda: (checkout / "pyproject.toml").write_text("[tool.pyright]\n"),
        lambda: (checkout / "one.py").unlink(),
    ):
        change()
        seen.append(type_check.digest())
    assert len(set(seen)) == len(seen)


def test_tests_and_prose_do_not(checkout: Path) -> None:
    before = type_check.digest()
    (checkout / "test_one.py").write_text("b = 1\n")
    (checkout / "tests").mkdir()
    (checkout / "tests" / "test_two.py").write_text("b = 1\n")
    (checkout / "README.md").write_text("b\n")
    assert type_check.digest() == before


def test_it_runs_until_it_passes_and_then_only_after_a_change(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    codes = [1, 0, 0]
    real = subprocess.run

    def run(command: list, **keywords):
        if command[0] == "git":
            return real(command, **keywords)
        return subprocess.CompletedProcess(command, codes.pop(0))

    monkeypatch.setattr(type_check.subprocess, "run", run)
    monkeypatch.setattr(type_check, "PASSED", checkout / ".passed")
    assert [type_check.main() for _ in range(3)] == [1, 0, 0]
    assert len(codes) == 1
    (checkout / "one.py").write_text("a = 3\n")
    assert type_check.main() == 0
    assert not codes
