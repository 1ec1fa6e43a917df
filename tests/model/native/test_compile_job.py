"""Compilers say what is wrong, and end with the process that has asked for them."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from draftwerk.model.native.compiler import Compiler, compile_library
from draftwerk.model.native.isa import ISAS, NativeUnavailable
from tests.support.compilers import hanging_compiler, is_running
from tests.support.waiting import wait_until

ISA = next(iter(ISAS.values()))
COMPILES = """
import sys
from pathlib import Path
from draftwerk.model.native.compiler import Compiler, compile_library
from draftwerk.model.native.isa import ISAS
folder = Path(sys.argv[1])
isa = next(iter(ISAS.values()))
compile_library(Compiler((sys.argv[2],), ""), isa, folder, folder, folder / "made.so")
"""


def test_what_a_compiler_says_is_told(tmp_path: Path) -> None:
    (tmp_path / "one.cpp").touch()
    fails = tmp_path / "fails"
    fails.write_text("#!/bin/sh\necho no such thing as that >&2\nexit 3\n")
    fails.chmod(0o755)
    with pytest.raises(NativeUnavailable, match="failed:\nno such thing as that"):
        compile_library(Compiler((str(fails),), ""), ISA, tmp_path, tmp_path, tmp_path / "made.so")


def test_a_process_that_is_killed_leaves_no_compiler(tmp_path: Path) -> None:
    (tmp_path / "one.cpp").touch()
    command, started = hanging_compiler(tmp_path)
    asking = subprocess.Popen([sys.executable, "-c", COMPILES, str(tmp_path), str(command)])
    wait_until(started.exists)
    (compiler,) = map(int, started.read_text().split())
    assert is_running(compiler)
    os.kill(asking.pid, signal.SIGKILL)
    asking.wait()
    wait_until(lambda: not is_running(compiler))
    assert not (tmp_path / "made.so").exists()
