"""The limits of a container: those of its control group or of one above it.

version 2    cpu.max             "200000 100000": 200 ms of CPU time every 100 ms; or "max ..."
version 1    cpu.cfs_quota_us    200000, or -1; beside cpu.cfs_period_us, 100000

Memory counts the files in the system's cache, which are dropped when others need it.
"""

from collections.abc import Iterator
from math import ceil
from pathlib import Path

MEMBERSHIP = Path("/proc/self/cgroup")
ROOT = Path("/sys/fs/cgroup")
MEMORY_FILES = (
    ("memory.max", "memory.current"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes"),
)
"""A group's limit and what it holds, in version 2 and 1."""


def quota_cpus(membership: Path = MEMBERSHIP, root: Path = ROOT) -> int | None:
    """Return the CPUs that the tightest quota comes to, rounded up; None without a quota."""
    found = [quota for folder in _folders("cpu", membership, root) if (quota := _quota(folder))]
    return max(1, ceil(min(found))) if found else None


def memory_left(membership: Path = MEMBERSHIP, root: Path = ROOT) -> int | None:
    """Return the bytes that the tightest limit leaves; None without a limit."""
    found = [_left(folder) for folder in _folders("memory", membership, root)]
    return min((max(0, left) for left in found if left is not None), default=None)


def _left(folder: Path) -> int | None:
    for limit, used in MEMORY_FILES:
        try:
            left = int((folder / limit).read_text()) - int((folder / used).read_text())
            return left + _evictable(folder)
        except (OSError, ValueError):  # no such files, or "max"
            continue
    return None


def _evictable(folder: Path) -> int:
    """Return the bytes of files that the group holds and that can be dropped."""
    lines = (line.split() for line in (folder / "memory.stat").read_text().splitlines())
    found = {name: int(size) for name, size in lines}
    version_1 = "total_" if "total_cache" in found else ""
    return sum(found.get(f"{version_1}{name}_file", 0) for name in ("active", "inactive"))


def _folders(controller: str, membership: Path, root: Path) -> Iterator[Path]:
    """Yield the folders of this process's control group and of all above it.

    Inside a container the path may be the host's and lead nowhere; the root is then the container's
    own group, so it is always looked at.
    """
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        bases = [root / controller, root / controllers] if controllers else [root]
        for base in bases:
            inner = base / path.lstrip("/")
            yield inner
            yield from (above for above in inner.parents if above.is_relative_to(base))


def _quota(folder: Path) -> float | None:
    """Return the CPUs that one group may use, or None if it may use all."""
    try:
        if (folder / "cpu.max").is_file():
            quota, period = (folder / "cpu.max").read_text().split()
        else:
            quota = (folder / "cpu.cfs_quota_us").read_text()
            period = (folder / "cpu.cfs_period_us").read_text()
        return int(quota) / int(period) if int(quota) > 0 and int(period) > 0 else None
    except (OSError, ValueError):  # no such files, or "max"
        return None
