"""What operating systems do differently: one function each, with a portable form.

Linux is what the project is tested on. On macOS the portable forms serve; they are untested there.
"""

import ctypes
import os
import platform
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Container
from contextlib import suppress
from pathlib import Path

from draftwerk.machine.quota import memory_left

PROC = Path("/proc")
PR_SET_PDEATHSIG = 1
PR_SET_NAME = 15
ARCHITECTURES = {"amd64": "x86_64", "arm64": "aarch64"}
"""Other names of an architecture, to the one that Linux has for it."""
FEATURE_LINES = ("flags", "Features")
"""Where /proc/cpuinfo names a CPU's features: on x86, on ARM."""
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8
"""The numbers of mallopt's parameters in glibc."""
ALLOCATION_KEPT_MAX = 2**20
"""Bytes above which a block is a mapping of its own, and free ones at the end are returned."""
REUSED_MAX, REUSED_BLOCK_MAX = 2**28, 2**25
"""Bytes that a model process keeps of what steps have freed, and the largest block that glibc lets
it keep: the logits of 16 rows are 768 pages, and a new page takes two microseconds on some hosts.
"""
APPLE_FEATURES = {
    "hw.optional.AdvSIMD": "asimd",
    "hw.optional.arm.FEAT_DotProd": "asimddp",
    "hw.optional.arm.FEAT_I8MM": "i8mm",
}
"""Linux's names of features, by those of sysctl."""


def architecture() -> str:
    """Return the CPU's architecture by its Linux name: x86_64, aarch64 or another."""
    name = platform.machine().lower()
    return ARCHITECTURES.get(name, name)


def share_one_heap() -> bool:
    """Have all threads share one heap, and large blocks none; returns whether the allocator can.

    Before threads begin: glibc gives each a heap of 64 MiB of its own otherwise, and what large
    bodies leave there stays. Other allocators are left as they are.
    """
    limits = {M_ARENA_MAX: 1, M_MMAP_THRESHOLD: ALLOCATION_KEPT_MAX}
    return _limit_heap(limits | {M_TRIM_THRESHOLD: ALLOCATION_KEPT_MAX})


def reuse_freed_memory() -> bool:
    """Have later allocations take what is freed from now on; returns whether the allocator can."""
    return _limit_heap({M_MMAP_THRESHOLD: REUSED_BLOCK_MAX, M_TRIM_THRESHOLD: REUSED_MAX})


def _limit_heap(limits: dict[int, int]) -> bool:
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and all(mallopt(*limit) for limit in limits.items())


def open_files_up_to(count: int) -> int:
    """Have this process open up to `count` files at once; returns how many it may open.

    The limit is raised as far as the system lets a process raise its own (`ulimit -Hn`).
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = count if hard == resource.RLIM_INFINITY else min(count, hard)
    if soft == resource.RLIM_INFINITY or soft >= allowed:
        return count if soft == resource.RLIM_INFINITY else soft
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    return allowed


def return_freed_memory() -> None:
    """Give freed memory back to the system where glibc is the allocator: some milliseconds."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def cpu_features(proc: Path = PROC) -> frozenset[str]:
    """Return the CPU's features by their Linux names; none where nobody tells."""
    if sys.platform == "darwin":
        return _apple_features()
    return frozenset(_told(proc, FEATURE_LINES).split())


def cpu_vendor(proc: Path = PROC) -> str:
    """Return who made the CPU, as x86 ones tell it, as in "GenuineIntel"; "" where nobody tells."""
    return _told(proc, ("vendor_id",))


def _told(proc: Path, names: Container[str]) -> str:
    """Return what the first line of one of these names says of a CPU, or ""."""
    try:
        lines = (proc / "cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    found = (line.partition(":") for line in lines)
    return next((value.strip() for name, _, value in found if name.strip() in names), "")


def _apple_features() -> frozenset[str]:
    asked = subprocess.run(
        ["sysctl", *APPLE_FEATURES], capture_output=True, text=True, check=False
    ).stdout
    pairs = (line.partition(": ") for line in asked.splitlines())
    present = {name for name, _, value in pairs if value.strip() == "1"}
    return frozenset(APPLE_FEATURES[name] for name in APPLE_FEATURES if name in present)


def cpu_name(proc: Path = PROC) -> str:
    """Return the CPU's name for people, or its architecture."""
    return _told(proc, ("model name",)) or platform.processor() or architecture()


def affinity() -> int:
    """Return how many CPUs this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def memory_bytes() -> int:
    """Return the machine's memory; 0 where nobody tells."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 0


def free_bytes(proc: Path = PROC, container: Callable[[], int | None] = memory_left) -> int:
    """Return the memory that programs may still take, within the container's limit too."""
    free, left = available_bytes(proc), container()
    return free if left is None else min(free, left)


def gpu_free_bytes() -> int:
    """Return the free memory of the first GPU; 0 where its driver does not tell."""
    command = ["nvidia-smi", "--query-gpu=memory.free", "--format=csv,noheader,nounits", "--id=0"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
        return 2**20 * int(said.split()[0])
    except (OSError, ValueError, IndexError):
        return 0


def proportional_bytes(process_id: int, proc: Path = PROC) -> int:
    """Return the memory of a process and its descendants, what they share counted once (PSS).

    It is 0 where there is no /proc; where that does not tell what is shared, it is counted by each.
    """
    return sum(held_bytes(each, proc) for each in family(process_id, proc))


def held_bytes(process_id: int, proc: Path = PROC) -> int:
    """Return one process's part: its own memory, and its share of what it shares."""
    try:
        for line in (proc / str(process_id) / "smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    try:
        pages = int((proc / str(process_id) / "statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):  # it has gone
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def family(process_id: int, proc: Path = PROC) -> list[int]:
    """Return a process and its descendants; nothing where it has gone."""
    try:
        children = [
            int(child)
            for task in (proc / str(process_id) / "task").iterdir()
            for child in (task / "children").read_text().split()
        ]
    except (OSError, ValueError):
        return []
    return [process_id, *(each for child in children for each in family(child, proc))]


def available_bytes(proc: Path = PROC) -> int:
    """Return the memory that new programs could have without swapping; 0 where nobody tells."""
    try:
        for line in (proc / "meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return 0


NICENESS = 5
"""The niceness of models: the server works for microseconds, and they fill every core for long."""


def lower_priority(niceness: int = NICENESS) -> None:
    """Let other processes go before this one, unless they do already.

    Linux keeps a niceness by thread, and gives it to those that a thread starts; elsewhere a
    process has one.
    """
    tasks = PROC / "self" / "task"
    for thread in map(int, os.listdir(tasks) if tasks.is_dir() else ["0"]):
        with suppress(OSError):  # it has ended
            now = os.getpriority(os.PRIO_PROCESS, thread)
            os.setpriority(os.PRIO_PROCESS, thread, max(now, niceness))


def name_process(name: str) -> None:
    """Have Linux show another name for this process, of fifteen characters at most."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_NAME, name.encode())


def die_with_parent() -> None:
    """Ask Linux for a SIGKILL when the parent ends, however it ends.

    Elsewhere a child ends by itself when it next reads from or writes to its parent.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
