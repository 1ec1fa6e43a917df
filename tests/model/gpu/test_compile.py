"""Every kernel compiles for Ampere, Hopper and Blackwell on a machine that has no GPU."""

import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="Triton is not installed")

ROOT = Path(__file__).parents[3]
MODEL = ROOT / "draftwerk/model"
TOOLS = [ROOT / f"validation/{name}.py" for name in ("compile_kernels", "kernel_cases")]
SOURCES = ("gpu", "draft_head", "batch", "reference")
"""Where the kernels are, and the constants that they are compiled for."""


def fingerprint() -> str:
    """Return a hash of all that decides the compiler's output."""
    import triton

    found = sha256(triton.__version__.encode())
    for tool in TOOLS:
        found.update(tool.read_bytes())
    for source in SOURCES:
        for path in sorted((MODEL / source).rglob("*.py")):
            found.update(path.read_bytes())
    return found.hexdigest()


def compiled(capability: int) -> str:
    """Return what compiling prints; in another process: this one's kernels are interpreted."""
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    ended = subprocess.run(
        [
            *(sys.executable, "-m", "validation.compile_kernels"),
            *("--first", "--capability", str(capability)),
        ],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@pytest.mark.parametrize(
    "capability", [80, *(pytest.param(each, marks=pytest.mark.grid) for each in (90, 120))]
)
def test_every_kernel_compiles_without_spilling(capability: int, pytestconfig: pytest.Config):
    """Once for each state of the sources: the compiler's output for the same ones is kept."""
    cache, key = getattr(pytestconfig, "cache", None), f"kernels/{capability}-{fingerprint()}"
    said = cache.get(key, None) if cache is not None else None
    if said is None:
        said = compiled(capability)
        if cache is not None:
            cache.set(key, said)
    assert "30 kernels compile; 0 cases spill, 0 leave a core idle" in said


def test_occupancy_is_what_registers_shared_memory_and_warps_leave():
    from validation.compile_kernels import CORES, Core, KernelReport

    def share(warps: int, registers: int, shared: int, core: Core = CORES[90]) -> float:
        return KernelReport("", {}, {}, warps, registers, 0, shared).occupancy(core)

    assert share(4, 32, 0) == 1.0
    assert share(4, 255, 0) == 8 / 64
    assert share(4, 32, 100 << 10) == 8 / 64
    assert share(4, 32, 100 << 10, CORES[120]) == 0.0
    assert share(8, 64, 50 << 10, CORES[120]) == 16 / 48
