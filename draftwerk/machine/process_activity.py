"""What a process does, as the system counts it: a starved one is told from one that hangs."""

from pathlib import Path
from typing import NamedTuple

TICKS_PER_S = 100
"""Of the clock that Linux counts a process's time by, on every architecture that this runs on."""
STOPPED = "TtZX"


class ProcessActivity(NamedTuple):
    """What is known of a process at a moment."""

    cpu_s: float
    """Time that it was given on CPUs, in all of its threads."""
    is_runnable: bool
    """Whether a thread of it runs, or would if it was given a CPU."""
    is_stopped: bool


def process_activity(process_id: int) -> ProcessActivity | None:
    """Return what a process does; None where that cannot be told, as on other systems."""
    try:
        tasks = [*Path(f"/proc/{process_id}/task").iterdir()]
        stats = [fields(task / "stat") for task in tasks]
        whole = fields(Path(f"/proc/{process_id}/stat"))
    except (OSError, ValueError, IndexError):
        return None
    return ProcessActivity(
        cpu_s=(int(whole[11]) + int(whole[12])) / TICKS_PER_S,
        is_runnable=any(each[0] == "R" for each in stats),
        is_stopped=all(each[0] in STOPPED for each in stats),
    )


def fields(stat: Path) -> list[str]:
    """Return what stands behind a task's name, which may hold anything."""
    return stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()


def is_starved(
    heard: ProcessActivity | None,
    before: ProcessActivity | None,
    now: ProcessActivity | None,
    cpu_s_max: float,
) -> bool:
    """Return whether a silent process lacks CPU time, and does not hang.

    `heard` is its activity when it was last heard of, `before` that of an earlier look. One that
    is stopped, waits without a thread that would run, or has had `cpu_s_max` of its own on each
    of two CPUs without a sign of life, hangs.
    """
    if heard is None or before is None or now is None or now.is_stopped:
        return False
    if now.cpu_s - heard.cpu_s > 2.0 * cpu_s_max:
        return False
    return now.is_runnable or now.cpu_s > before.cpu_s
