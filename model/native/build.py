"""Compiles the C++ sources once per machine, into the user's cache."""

import functools
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path

SOURCES = Path(__file__).parent / "source"
NEEDED = ("avx512f", "avx512bw", "avx512dq", "avx512vl", "fma", "f16c")
FLAGS = (
    "-std=c++17",
    "-O3",
    "-march=native",
    "-ffp-contract=off",  # a fused multiply-add only where written: the same bits for 1 and 8 rows
    "-fno-math-errno",
    "-fPIC",
    "-shared",
    "-pthread",
)


class NativeUnavailable(RuntimeError):
    """This machine cannot build or run the native kernels; torch can do their work."""


@functools.cache
def library_path() -> Path:
    """Return the compiled library, building it if the sources or the machine are new."""
    flags = _cpu_flags()
    missing = [name for name in NEEDED if name not in flags]
    if missing:
        raise NativeUnavailable(f"the CPU lacks {', '.join(missing)}")
    path = _cache() / f"native-{_key(flags)}.so"
    if not path.exists():
        _compile(path)
    return path


def _cpu_flags() -> tuple[str, ...]:
    if platform.machine() != "x86_64":
        raise NativeUnavailable(f"no kernels for {platform.machine()}")
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError as error:
        raise NativeUnavailable("cannot read which instructions the CPU has") from error
    line = next((line for line in text.splitlines() if line.startswith("flags")), "")
    return tuple(sorted(line.partition(":")[2].split()))


def _cache() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "draftwerk"


def _key(cpu_flags: tuple[str, ...]) -> str:
    digest = hashlib.sha256(" ".join(FLAGS + cpu_flags).encode())
    for source in sorted(SOURCES.iterdir()):
        digest.update(source.name.encode() + source.read_bytes())
    return digest.hexdigest()[:16]


def _compile(path: Path) -> None:
    compiler = shutil.which(os.environ.get("CXX", "g++"))
    if compiler is None:
        raise NativeUnavailable("no C++ compiler (g++, or the one CXX names)")
    path.parent.mkdir(parents=True, exist_ok=True)
    # Into a file of its own, then renamed: two processes may build at once.
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        built = Path(folder) / path.name
        command = [compiler, *FLAGS, *map(str, sorted(SOURCES.glob("*.cpp"))), "-o", str(built)]
        outcome = subprocess.run(command, capture_output=True, text=True, check=False)
        if outcome.returncode != 0:
            raise NativeUnavailable(f"the C++ compiler failed:\n{outcome.stderr[-2000:]}")
        built.rename(path)
