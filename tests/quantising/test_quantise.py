"""`draftwerk quantise`: what it prints, what it refuses, and that its files are served."""

from pathlib import Path

import pytest

from draftwerk.__main__ import main
from draftwerk.model.checkpoint.hub import locate
from draftwerk.model.native.build import NativeUnavailable
from draftwerk_tools.quantising import quantise as quantise_module
from draftwerk_tools.quantising.quantise import measured
from tests.support.tiny_models import save_tiny_with_text


def run(*words: str | Path) -> int:
    return main(["quantise", *map(str, words)])


def test_a_file_and_what_it_costs(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    save_tiny_with_text(tmp_path / "source", hidden_size=64, intermediate_size=96, head_dim=16)
    output = tmp_path / "out.gguf"
    assert run(tmp_path / "source", "Q8_0", "-o", output) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.endswith("8.50 bits a weight") for line in lines)
    assert f"serve it: draftwerk serve {output}" in lines
    (distance,) = (line for line in lines if line.startswith("KL to the source: "))
    assert float(distance.split()[4]) < 0.05
    assert "of 1024 tokens (16 texts of its own)" in distance
    assert [line.split()[0] for line in lines if "at once" in line] == ["1", "4", "16", "64"]


def test_it_says_why_it_does_not_measure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def unavailable(**_: object) -> None:
        raise NativeUnavailable("no compiler")

    monkeypatch.setattr(quantise_module, "obtain", unavailable)
    (line,) = measured(locate(None), tmp_path / "out.gguf", lambda _: None)
    assert line == "not measured, as the native kernels cannot run here: no compiler"


def test_one_line_for_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    output = tmp_path / "out.gguf"
    assert run("Q4_X", "-o", output) == 2
    assert "type 'Q4_X' is none of F32, BF16, Q8_0" in capsys.readouterr().err
    assert run("Q4_0", "-o", output) == 2
    error = capsys.readouterr().err
    assert "is quantised already (Q4_1, Q8_0): take its unquantised weights, or --again" in error
    output.touch()
    assert run("Q4_0", "-o", output, "--again") == 2
    assert f"{output}: it exists" in capsys.readouterr().err
    assert run(tmp_path / "nothing", "Q4_0", "-o", tmp_path / "other.gguf") == 2
    assert "no such directory or GGUF file" in capsys.readouterr().err
