"""A process that is starved is told from one that hangs."""

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager

import pytest

from draftwerk.machine.process_activity import (
    ProcessActivity,
    cpu_time,
    is_starved,
    process_activity,
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="it is read from /proc")
HEARD_S = 10.0


@contextmanager
def running(program: str) -> Generator[int]:
    process = subprocess.Popen(
        [sys.executable, "-c", f"print(1, flush=True)\n{program}"], stdout=-1
    )
    assert process.stdout is not None
    process.stdout.readline()
    try:
        yield process.pid
    finally:
        process.kill()
        process.communicate()


def test_a_busy_process_is_runnable_and_its_time_grows() -> None:
    with running("while True: pass") as process_id:
        first = process_activity(process_id)
        assert first is not None
        while (now := process_activity(process_id)) is not None and now.cpu_s == first.cpu_s:
            pass
        assert now is not None and now.is_runnable and not now.is_stopped
        os.kill(process_id, signal.SIGSTOP)
        while (now := process_activity(process_id)) is not None and not now.is_stopped:
            pass
        assert now is not None and not now.is_runnable


def test_the_time_of_a_process_is_that_of_all_its_threads() -> None:
    begun = resource_children()
    with running(
        "from threading import Thread\nThread(target=sum, args=[range(10**7)]).start()"
    ) as process_id:
        while (spent := cpu_time(process_id)) is None or spent < 0.05:
            pass
    # As the system told it when the process had ended.
    assert 0.05 <= spent <= resource_children() - begun
    assert cpu_time(process_id) is None


def resource_children() -> float:
    """Return the CPU time of all children that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def test_one_that_waits_is_not_runnable() -> None:
    with running("import threading; threading.Event().wait()") as process_id:
        while (now := process_activity(process_id)) is None or now.is_runnable:
            pass
        assert not now.is_stopped
    assert process_activity(process_id) is None


@pytest.mark.parametrize(
    ("now", "starved"),
    [
        (ProcessActivity(10.0, False, False), False),
        (ProcessActivity(10.001, False, False), False),
        (ProcessActivity(10.1, False, False), True),
        (ProcessActivity(10.0, True, False), True),
        (ProcessActivity(10.1, True, True), False),
        (ProcessActivity(27.0, True, False), False),
        (None, False),
    ],
)
def test_who_is_waited_for(now: ProcessActivity | None, starved: bool) -> None:
    assert is_starved(HEARD_S, HEARD_S, now, 8.0) == starved
