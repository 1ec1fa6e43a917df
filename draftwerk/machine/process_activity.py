"""The activity of a process, as the system counts it: a starved one is told from one that hangs."""

import sys
from pathlib import Path
from time import clock_gettime
from typing import NamedTuple

PROCESS_CLOCK = 2
"""The kind of Linux's clocks that count the time a process was given, in the last three bits of
their numbers; before those stands the complement of the process's id."""
STOPPED = "TtZX"
PROGRESS_MIN_S = 0.01
"""CPU time that counts as a sign of work: a thread that wakes now and then takes less."""


class ProcessActivity(NamedTuple):
    """The activity of a process up to a moment."""

    cpu_s: float
    """Time that it was given on CPUs, in all of its threads."""
    is_runnable: bool
    """Whether a thread of it runs, or would if it was given a CPU."""
    is_stopped: bool


def cpu_time(process_id: int) -> float | None:
    """Return the time in seconds that a process was given on CPUs, in all of its threads; None
    where that cannot be told, as on other systems."""
    # One call of the system and no file: this is asked for before every answer of a process.
    if sys.platform != "linux":
        return None
    try:
        return clock_gettime(~process_id << 3 | PROCESS_CLOCK)
    except OSError:
        return None


def process_activity(process_id: int) -> ProcessActivity | None:
    """Return what a process does, thread by thread; None where that cannot be told."""
    try:
        states = [fields(task / "stat")[0] for task in Path(f"/proc/{process_id}/task").iterdir()]
    except (OSError, IndexError):
        return None
    if (cpu_s := cpu_time(process_id)) is None:
        return None
    return ProcessActivity(
        cpu_s=cpu_s,
        is_runnable="R" in states,
        is_stopped=all(state in STOPPED for state in states),
    )


def fields(stat: Path) -> list[str]:
    """Return what stands behind a task's name, which may hold anything."""
    return stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()


def is_starved(
    heard_s: float | None,
    before_s: float | None,
    now: ProcessActivity | None,
    cpu_s_max: float,
) -> bool:
    """Return whether a silent process lacks CPU time, and does not hang.

    `heard_s` is its CPU time when it was last heard of, `before_s` that of an earlier look. One
    that is stopped, waits without a thread that would run, or has had `cpu_s_max` of its own on
    each of two CPUs without a sign of life, hangs.
    """
    if heard_s is None or before_s is None or now is None or now.is_stopped:
        return False
    if now.cpu_s - heard_s > 2.0 * cpu_s_max:
        return False
    return now.is_runnable or now.cpu_s - before_s >= PROGRESS_MIN_S
