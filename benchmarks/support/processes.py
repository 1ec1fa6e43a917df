"""A server's processes, from /proc: its children, their roles, memory and descriptors."""

import os
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from draftwerk.machine.holders import process_role
from draftwerk.machine.host import PROC, family


def model_process(server: int, role: str) -> int | None:
    """Return the id of the server's process of a role, if there is one."""
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


def rss_mb(process: int) -> float:
    """Return a process's resident memory in MB."""
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


class ProcessorTime(NamedTuple):
    """What threads took of the cores so far, in ms."""

    ran: float = 0.0
    waited: float = 0.0
    """For a core, ready to run."""

    def since(self, before: "ProcessorTime") -> "ProcessorTime":
        """Return what was taken since."""
        return ProcessorTime(self.ran - before.ran, self.waited - before.waited)


def thread_time(process: int, thread: int) -> ProcessorTime:
    """Return what one thread of a process took."""
    ran, waited, _ = Path(f"/proc/{process}/task/{thread}/schedstat").read_text().split()
    return ProcessorTime(1e-6 * int(ran), 1e-6 * int(waited))


def threads_time(process: int) -> ProcessorTime:
    """Return what all threads of a process took that live."""
    times = [thread_time(process, int(one)) for one in os.listdir(f"/proc/{process}/task")]
    return ProcessorTime(sum(one.ran for one in times), sum(one.waited for one in times))


def descriptors(process: int) -> int:
    """Return how many files and sockets a process holds open."""
    return len(os.listdir(f"/proc/{process}/fd"))
