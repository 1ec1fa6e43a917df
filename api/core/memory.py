"""The memory guard: takes no new requests while the server and its models hold too much memory."""

import os
from dataclasses import dataclass
from pathlib import Path

FULL, RELIEVED = 0.95, 0.90
"""Shares of the limit: between them nothing changes, so that the answer does not flicker."""


@dataclass(slots=True)
class MemoryGuard:
    """Whether there is memory for new requests; a limit of 0 means there always is."""

    limit_bytes: int
    used_bytes: int = 0
    full: bool = False

    def observe(self, used_bytes: int) -> None:
        """Take in a measurement."""
        self.used_bytes = used_bytes
        self.full = bool(self.limit_bytes) and used_bytes >= self.limit_bytes * (
            RELIEVED if self.full else FULL
        )


def resident_bytes(process_id: int, proc: Path = Path("/proc")) -> int:
    """Return the resident memory of a process and its descendants; 0 where there is no /proc."""
    try:
        pages = int((proc / str(process_id) / "statm").read_text().split()[1])
        children = [
            int(child)
            for task in (proc / str(process_id) / "task").iterdir()
            for child in (task / "children").read_text().split()
        ]
    except (OSError, ValueError, IndexError):  # it has gone
        return 0
    own = pages * os.sysconf("SC_PAGE_SIZE")
    return own + sum(resident_bytes(child, proc) for child in children)


def memory_bytes() -> int:
    """Return this machine's memory; 0 where the system has no figure."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return 0
