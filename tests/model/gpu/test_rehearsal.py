"""A visit from what travels alone, in an environment without what a card's machine lacks."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="Triton is not installed")

from benchmarks.gpu import rehearse as rehearsing
from benchmarks.gpu.rehearse import environment, rehearse


def test_an_environment_lacks_what_a_cards_machine_lacks(tmp_path: Path):
    interpreter, version = environment(sys.executable, tmp_path / "environment")
    assert version == ".".join(map(str, sys.version_info[:2]))
    words = [interpreter, "-P", "-c", rehearsing.CHECK, "msgspec", "torch", "draftwerk", "pytest"]
    found = subprocess.run(words, check=True, capture_output=True, text=True).stdout.split()
    assert found == ["torch", "pytest"]


def test_an_environment_that_has_more_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(rehearsing, "LACKING", ("json", *rehearsing.LACKING))
    with pytest.raises(SystemExit, match="the environment has json, which"):
        environment(sys.executable, tmp_path / "environment")


@pytest.mark.grid
@pytest.mark.timeout(3000)
def test_a_visit_comes_to_its_end_from_what_is_carried(tmp_path: Path):
    """Minutes on a quiet machine, and as long as it takes on another."""
    assert rehearse(sys.executable, tmp_path, None, minutes=45)
