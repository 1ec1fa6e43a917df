"""Ctrl-C reaches every process of a terminal's foreground: a server ends in order at any moment.

What each start is told to serve, and how many processes it has when it is interrupted: so each kind
of process is met while it begins.
"""

import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from shutil import copytree
from uuid import uuid4

import msgspec
import pytest

from draftwerk_tools.loadtest.server.launcher import free_port
from tests.support.waiting import DEADLINE_S, wait_until

MARK = "TERMINAL_OF_TEST"
INTERRUPTED = 128 + signal.SIGINT
ALONE, STAGES = (), ("--pipeline-parallel", "2")
MORE = [("--tensor-parallel", "2"), ("--spare", "off"), ("--also", "{other}")]


@dataclass
class Terminal:
    """A shell's foreground job, and the processes that come of it."""

    job: subprocess.Popen[bytes]
    log: Path
    port: int
    mark: str

    def others(self) -> set[int]:
        """Return the ids of all its processes but the server."""
        found = set[int]()
        for path in Path("/proc").glob("[0-9]*/environ"):
            with suppress(OSError):  # it has ended
                if self.mark.encode() in path.read_bytes():
                    found.add(int(path.parent.name))
        return found - {self.job.pid}

    def interrupt(self) -> None:
        """Send what Ctrl-C does."""
        os.killpg(self.job.pid, signal.SIGINT)

    def is_ready(self) -> bool:
        with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{self.port}/ready"):
            return True
        return False

    def has_ended(self, code: int) -> None:
        """Wait for the end: its exit code, and that nothing stays behind, nor a traceback."""
        assert self.job.wait(DEADLINE_S) == code, self.log.read_text()
        wait_until(lambda: not self.others())
        assert "Traceback" not in self.log.read_text()


@contextmanager
def terminal(model: Path, folder: Path, words: tuple[str, ...]) -> Generator[Terminal]:
    port, mark, log = free_port(), uuid4().hex, folder / "log"
    copytree(model, folder / "other")  # a link is called as what it leads to
    given = [word.format(other=folder / "other") for word in words]
    command = [sys.executable, "-m", "draftwerk", "serve", str(model), "--port", str(port), *given]
    with log.open("wb") as output:
        job = subprocess.Popen(
            command,
            env={**os.environ, MARK: mark},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    opened = Terminal(job, log, port, mark)
    try:
        yield opened
    finally:
        job.kill()
        job.wait()
        wait_until(lambda: not opened.others())


@pytest.mark.parametrize(
    ("words", "count"),
    [
        (ALONE, 2),
        *(
            pytest.param(words, count, marks=pytest.mark.grid)
            for words in (ALONE, STAGES, *MORE)
            for count in range(1, 6)
        ),
    ],
)
def test_a_start_ends_with_all_its_processes(
    model: Path, tmp_path: Path, words: tuple[str, ...], count: int
) -> None:
    with terminal(model, tmp_path, words) as job:
        wait_until(lambda: len(job.others()) >= count or job.is_ready())
        is_ready = job.is_ready()
        job.interrupt()
        job.has_ended(0 if is_ready else INTERRUPTED)


@pytest.mark.parametrize(
    "words", [STAGES, *(pytest.param(words, marks=pytest.mark.grid) for words in (ALONE, *MORE))]
)
def test_a_stream_may_end_and_a_second_interrupt_ends_it(
    model: Path, tmp_path: Path, words: tuple[str, ...]
) -> None:
    with terminal(model, tmp_path, words) as job:
        wait_until(job.is_ready)
        assert all(os.getsid(other) != job.job.pid for other in job.others())
        body = {"prompt": "one two", "stream": True, "max_tokens": 2000, "ignore_eos": True}
        address = f"http://127.0.0.1:{job.port}/v1/completions"
        with urllib.request.urlopen(address, msgspec.json.encode(body)) as stream:
            assert stream.readline().startswith(b"data: ")
            job.interrupt()
            wait_until(lambda: not job.is_ready())
            job.interrupt()
            job.has_ended(INTERRUPTED)
