"""The command as a process."""

import os
import subprocess
import sys

from draftwerk.loadtest.server.launcher import free_port


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
