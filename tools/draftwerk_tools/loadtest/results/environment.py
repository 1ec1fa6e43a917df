"""Where a result was taken: the client's machine and software."""

import os
import platform
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from msgspec import Struct


class Environment(Struct, frozen=True):
    """The client's machine and software; no names of machines or people."""

    started: str
    argv: list[str]
    cpu: str
    cpus: int
    memory_gib: float
    load_average: float
    system: str
    python: str
    packages: dict[str, str]
    server: str = ""
    models: list[str] = []


def environment(argv: list[str]) -> Environment:
    """Describe where the client runs, and when it began."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return Environment(
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        argv=argv,
        cpu=_cpu_name(),
        cpus=os.cpu_count() or 1,
        memory_gib=round(pages / 2**30, 1),
        load_average=round(os.getloadavg()[0], 2),
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        python=sys.version.split()[0],
        packages={name: version(name) for name in ("aiohttp", "msgspec")},
    )


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()
