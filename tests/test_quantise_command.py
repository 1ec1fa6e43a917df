"""The words of `draftwerk quantise`."""

from pathlib import Path

import pytest

from draftwerk_tools.quantise_command import parser


def test_a_model_a_type_and_a_file_are_enough() -> None:
    given = parser().parse_args(["a/b", "Q8_0", "-o", "out.gguf"])
    assert (given.model, given.kind, given.output) == ("a/b", "Q8_0", Path("out.gguf"))
    assert given.measure and not given.again


def test_a_misspelt_flag_is_answered_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parser().parse_args(["Q8_0", "-o", "f", "--mesure"])
    assert capsys.readouterr().err == (
        "draftwerk quantise: there is no --mesure; did you mean --measure?\n"
    )
