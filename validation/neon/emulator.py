"""The kernels compiled for AArch64, and run on this machine by QEMU."""

import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from draftwerk.model.native.build import SOURCES

DRIVER = Path(__file__).parent / "driver.cpp"
FLAGS = ("-std=c++17", "-O2", "-ffp-contract=off", "-fno-math-errno", "-pthread", "-static")
MACHINES = {
    "neon": ("-march=armv8-a", "generic"),
    "neon-dotprod": ("-march=armv8.2-a+dotprod", "generic+v8_2a+dotprod"),
}
"""Instruction sets, with GCC's flag and Zig's name for them."""
EMULATOR = "qemu-aarch64"


class Missing(RuntimeError):
    """A compiler or an emulator is not installed."""


def compiler(isa: str) -> tuple[str, ...]:
    """Return the command that compiles for one: Debian's GCC, or else the Clang of Zig."""
    flag, name = MACHINES[isa]
    if shutil.which("aarch64-linux-gnu-g++"):
        return ("aarch64-linux-gnu-g++", *FLAGS, flag)
    if find_spec("ziglang"):
        zig = (sys.executable, "-m", "ziglang", "c++", "-target", "aarch64-linux-musl")
        return (*zig, *FLAGS, f"-mcpu={name}")
    raise Missing("no compiler for AArch64: apt install g++-aarch64-linux-gnu, or pip's ziglang")


def build(isa: str, folder: Path) -> Path:
    """Return the driver, compiled with all kernels."""
    if shutil.which(EMULATOR) is None:
        raise Missing(f"no {EMULATOR}: apt install qemu-user")
    sources = sorted(SOURCES.rglob("*.cpp"))
    built = folder / f"driver-{isa}"
    command = [*compiler(isa), f"-I{SOURCES}", str(DRIVER), *map(str, sources), "-o", str(built)]
    subprocess.run(command, check=True)
    return built


def replay(driver: Path, script: Path) -> bytes:
    """Return the results of a script's calls, one after the other."""
    results = script.with_suffix(".results")
    subprocess.run([EMULATOR, str(driver), str(script), str(results)], check=True)
    return results.read_bytes()
