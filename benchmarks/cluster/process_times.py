"""CPU time of the processes that this one has started, and those that they have."""

import os
from pathlib import Path

TICKS_S = os.sysconf("SC_CLK_TCK")
MODEL = b"draftwerk.model.process.worker"


def cpu_s_beside_models() -> float:
    """Return the CPU seconds of all descendants but model processes, those that ended left out."""
    children: dict[int, list[int]] = {}
    spent: dict[int, float] = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            is_model = MODEL in (folder / "cmdline").read_bytes()
        except OSError:  # it has ended
            continue
        process = int(folder.name)
        children.setdefault(int(fields[1]), []).append(process)
        spent[process] = 0.0 if is_model else (int(fields[11]) + int(fields[12])) / TICKS_S
    total, left = 0.0, list(children.get(os.getpid(), ()))
    while left:
        process = left.pop()
        total += spent[process]
        left += children.get(process, ())
    return total
