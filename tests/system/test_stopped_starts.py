"""A server that is stopped before it serves: it ends at once, with all that it has started."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from draftwerk_tools.loadtest.server.launcher import free_port
from tests.support.compilers import hanging_compiler, is_running
from tests.support.waiting import DEADLINE_S, wait_until


@pytest.mark.parametrize("compiles", ["the server", "its model process"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_does_not_wait_for_a_compiler(
    model: Path, tmp_path: Path, compiles: str, number: signal.Signals
) -> None:
    command, started = hanging_compiler(tmp_path)
    words = ["--attention", "native"] if compiles == "the server" else []
    server = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "draftwerk",
            "serve",
            str(model),
            "--port",
            str(free_port()),
            *words,
        ],
        env={**os.environ, "CXX": str(command), "XDG_CACHE_HOME": str(tmp_path)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until(started.exists)
        (compiler,) = map(int, started.read_text().split())
        server.send_signal(number)
        assert server.wait(DEADLINE_S) == 128 + number
        wait_until(lambda: not is_running(compiler))
    finally:
        server.kill()
        server.wait()
    assert not [*tmp_path.rglob("*.so")]
