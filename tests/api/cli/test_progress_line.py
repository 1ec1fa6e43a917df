"""Progress is one line that changes on a terminal, and few lines in a file."""

import os
from io import StringIO

import pytest

from draftwerk.api.cli.progress_line import OVER_LAST, QUIET_S, TELL_S, ProgressLine

pytestmark = pytest.mark.fast


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminals_line_is_written_over_while_its_subject_stays():
    screen = Terminal()
    line = ProgressLine(screen)
    for text in ("asking", "pulling m: 1 of 9 MB", "pulling m: 9 of 9 MB", "reading m"):
        line.show(text)
    assert screen.getvalue() == (
        f"  asking\n  pulling m: 1 of 9 MB\n{OVER_LAST}  pulling m: 9 of 9 MB\n  reading m\n"
    )


def test_a_file_gets_a_line_now_and_then():
    file, now = StringIO(), [0.0]
    line = ProgressLine(file, clock=lambda: now[0])
    for second in range(int(2 * QUIET_S) + 1):
        now[0] = float(second)
        line.show(f"pulling m: {second} of 99 MB")
    assert file.getvalue().splitlines() == [f"  pulling m: {n} of 99 MB" for n in (0, 10, 20)]


def test_lines_that_a_full_disk_does_not_take_are_dropped():
    with open("/dev/full", "w") as stream:
        line = ProgressLine(stream)
        line.show("asking")
        line.show("reading m")


def test_lines_without_a_reader_are_dropped():
    reads, writes = os.pipe()
    os.close(reads)
    with os.fdopen(writes, "w") as stream:
        line = ProgressLine(stream)
        line.show("asking")
        line.show("reading m")


def test_a_line_that_lasts_is_told_again():
    file, now = StringIO(), [0.0]
    line = ProgressLine(file, clock=lambda: now[0])
    line.show("building the tokenizer")
    for second in range(1, int(2 * TELL_S) + 2):
        now[0] = float(second)
        assert 0 <= line.tell_again() < TELL_S
    told = [f"  building the tokenizer ... {n:.0f} s" for n in (TELL_S, 2 * TELL_S)]
    assert file.getvalue().splitlines() == ["  building the tokenizer", *told]


def test_on_a_terminal_what_came_between_stays():
    screen, now = Terminal(), [0.0]
    line = ProgressLine(screen, clock=lambda: now[0])
    line.show("reading m")
    now[0] = TELL_S
    line.tell_again()
    assert screen.getvalue() == "  reading m\n  reading m ... 5 s\n"
