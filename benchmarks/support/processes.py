"""A server's processes, from /proc: its children, their roles, memory and descriptors."""

import os
from contextlib import suppress
from pathlib import Path

from draftwerk.machine.holders import process_role
from draftwerk.machine.host import PROC, family


def model_process(server: int, role: str) -> int | None:
    """Return the id of the server's target or draft process, if there is one."""
    for descendant in family(server):
        with suppress(OSError):  # it has gone
            if process_role(PROC / str(descendant)) == role:
                return descendant
    return None


def serving_processes(server: int) -> list[int]:
    """Return the processes whose descriptors clients can use up: the server's own, and of replicas
    the proxies, the doors and the engines that Ray started."""
    found = [server]
    for descendant in family(server):
        with suppress(OSError):  # it has gone
            title = (PROC / str(descendant) / "cmdline").read_bytes()
            if title.startswith((b"ray::ServeReplica", b"ray::ProxyActor")):
                found.append(descendant)
    return found


def children(process: int) -> list[int]:
    """Return a process's children."""
    tasks = Path(f"/proc/{process}/task").iterdir()
    found: list[int] = []
    for task in tasks:
        with suppress(OSError):  # a thread that has ended
            found += map(int, (task / "children").read_text().split())
    return found


def rss_mb(process: int) -> float:
    """Return a process's resident memory in MB."""
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def descriptors(process: int) -> int:
    """Return how many files and sockets a process holds open."""
    return len(os.listdir(f"/proc/{process}/fd"))
