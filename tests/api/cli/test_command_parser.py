"""The command line answers a mistake in one line."""

import pytest

from draftwerk.api.cli.command_parser import Parser, ShortHelp


def parser() -> Parser:
    found = Parser(prog="draftwerk serve", formatter_class=ShortHelp)
    found.add_argument("--port", type=int, help="where it listens; the rest is long")
    return found


def test_a_flag_that_is_none_is_named_in_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as error:
        parser().parse_args(["--prot", "1"])
    line = capsys.readouterr().err
    assert error.value.code == 2 and line.count("\n") == 1
    assert line.startswith("draftwerk serve: there is no --prot; ") and "--port" in line


def test_flags_are_not_abbreviated() -> None:
    with pytest.raises(SystemExit):
        parser().parse_args(["--por", "1"])
    assert parser().parse_args(["--port", "1"]).port == 1


def test_a_help_has_the_first_clause() -> None:
    words = parser().format_help()
    assert "where it listens" in words and "the rest" not in words
