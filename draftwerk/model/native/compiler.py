"""A C++ compiler: the one that CXX names, g++, clang++, or Zig's from the package index."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from draftwerk.machine.threads import usable_cpus
from draftwerk.model.native import compile_job
from draftwerk.model.native.isa import Isa, NativeUnavailable

CANDIDATES = ("g++", "c++", "clang++")
ZIG = "ziglang"
FLAGS = (
    "-std=c++17",
    "-O3",
    "-ffp-contract=off",  # a fused multiply-add only where written: the same bits for 1 and 8 rows
    "-fno-math-errno",
    "-fPIC",
    "-pthread",
)
ZIG_TARGETS = {"x86_64": "x86_64-linux-gnu.2.28", "aarch64": "aarch64-linux-gnu.2.28"}
"""The oldest C library that a library made by Zig runs with: torch's wheels need this one too."""
ERROR_CHARACTERS = 2000


class Compiler(NamedTuple):
    """A command that compiles C++, and what tells its output from others'."""

    command: tuple[str, ...]
    version: str
    is_zig: bool = False

    def flags(self, isa: Isa) -> tuple[str, ...]:
        """Return the flags for an instruction set; they alone decide what may be compiled."""
        if not self.is_zig:
            return (*FLAGS, *isa.flags)
        target = ZIG_TARGETS[isa.architecture]
        # Without -g0 it adds debug information, which takes a third of its time and is stripped.
        return (*FLAGS, "-g0", "-target", target, f"-mcpu={isa.zig_cpu}")


def find_compiler(environment: Mapping[str, str] = os.environ) -> Compiler | None:
    """Return the compiler that CXX names, a system compiler, or Zig, in this order; None without.

    Raises NativeUnavailable if CXX names one that is not there.
    """
    asked = environment.get("CXX")
    for name in (asked,) if asked else CANDIDATES:
        path = shutil.which(name, path=environment.get("PATH"))
        if path is not None:
            return Compiler((path,), _version(path))
    if asked:
        raise NativeUnavailable(f"no C++ compiler: CXX={asked} is not there")
    return find_zig()


def find_zig() -> Compiler | None:
    """Return the compiler inside the `ziglang` wheel, which brings its C and C++ libraries."""
    if sys.platform != "linux" or find_spec(ZIG) is None:
        return None
    try:
        found = version(ZIG)
    except PackageNotFoundError:
        return None
    return Compiler((sys.executable, "-m", ZIG, "c++"), f"Zig {found}", is_zig=True)


def _version(path: str) -> str:
    """Return the first line that a compiler says of itself."""
    said = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
    return (said.stdout.splitlines() or [Path(path).name])[0]


def compile_library(
    compiler: Compiler, isa: Isa, sources: Path, folder: Path, target: Path,
    progress: Callable[[str], None] = lambda _: None,
) -> None:  # fmt: skip
    """Compile all of `sources` into the library `target`, by way of objects in `folder`.

    `progress` is told how many of the parts are done. Raises NativeUnavailable with the end of what
    the compiler said.
    """
    flags = (*compiler.flags(isa), f"-I{sources}")
    environment = dict(os.environ)
    if compiler.is_zig:
        # Its copies of the C++ library are of use once; they need not stay in the user's cache.
        environment |= dict.fromkeys(("ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR"), str(folder))
    files = sorted(sources.rglob("*.cpp"))
    objects = [folder / f"{number}.o" for number in range(len(files))]
    commands = [
        [*compiler.command, *flags, "-c", str(source), "-o", str(made)]
        for source, made in zip(files, objects, strict=True)
    ]
    linked = [*compiler.command, *flags, "-shared", *map(str, objects), "-o", str(target)]
    stages = [commands, [[*linked, "-s"] if compiler.is_zig else linked]]
    parts = len(commands) + 1
    _run(stages, environment, lambda done: progress(f"{done} of {parts} parts"))


def _run(
    stages: Sequence[Sequence[Sequence[str]]],
    environment: Mapping[str, str],
    progress: Callable[[int], None],
) -> None:
    """Run compilers that end with this process, however it ends; tells how many are done."""
    done, words = 0, ""
    with subprocess.Popen(
        [sys.executable, "-I", "-S", compile_job.__file__],
        env=environment,
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as job:
        assert job.stdin is not None and job.stderr is not None
        job.stdin.write(json.dumps([stages, usable_cpus()]) + "\n")
        job.stdin.flush()
        for line in job.stderr:
            if line == compile_job.DONE:
                done += 1
                progress(done)
            else:
                words += line
    if job.returncode != 0:
        raise NativeUnavailable(f"the C++ compiler failed:\n{words[-ERROR_CHARACTERS:]}")
