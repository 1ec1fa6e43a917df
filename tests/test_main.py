"""The command as a process."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from draftwerk_tools.loadtest.server.launcher import free_port


def test_words_of_the_command_line_are_utf8_in_any_locale() -> None:
    plain = {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C"}
    ran = subprocess.run(
        [sys.executable, "-m", "draftwerk", "serve", "/nowhere/ünï", "--port", str(free_port())],
        env={**os.environ, **plain},
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 2
    assert "/nowhere/ünï" in ran.stderr.decode()
    assert b"Traceback" not in ran.stderr


def test_output_whose_reader_has_gone_is_no_error_to_show() -> None:
    reads, writes = os.pipe()
    os.close(reads)
    command = [sys.executable, "-u", "-m", "draftwerk", "cache"]
    ran = subprocess.run(command, stdout=writes, stderr=subprocess.PIPE, timeout=120, check=False)
    os.close(writes)
    assert (ran.returncode, ran.stderr) == (1, b"")


@pytest.mark.parametrize("module", ["draftwerk.api.cli.arguments", "draftwerk.api.app.server"])
def test_an_interrupt_while_a_command_is_imported_is_its_end(module: str) -> None:
    code = (
        "import sys; from draftwerk.__main__ import main\n"
        "class Finder:\n"
        "    def find_spec(self, name, *rest):\n"
        f"        if name == {module!r}: raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Finder()); sys.exit(main(['serve']))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, timeout=120, check=False
    )
    assert (ran.returncode, ran.stderr) == (130, b"")


def test_the_command_imports_nothing_before_it_catches_an_interrupt() -> None:
    code = (
        "import sys; before = set(sys.modules)\n"
        "import draftwerk.__main__; print(sorted(set(sys.modules) - before))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    ours = {"__future__", "draftwerk", "draftwerk.__main__"}
    assert set(ast.literal_eval(ran.stdout)) <= ours


def test_streams_that_the_parent_closed_are_open_again(tmp_path: Path) -> None:
    told = tmp_path / "told"
    code = (
        "import os, sys; from draftwerk.__main__ import main\n"
        "main(['models', '--families'])\n"
        "sys.stdout.write('x'); sys.stderr.write('x'); assert not sys.stdin.read()\n"
        f"number = os.open({str(told)!r}, os.O_WRONLY | os.O_CREAT)\n"
        "os.write(number, b'%d %d' % (number, os.get_inheritable(1)))"
    )
    command = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", sys.executable, "-c", code]
    assert subprocess.run(command, timeout=120, check=False).returncode == 0
    number, inheritable = map(int, told.read_text().split())
    assert number > 2 and inheritable
