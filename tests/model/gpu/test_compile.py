"""Every kernel compiles for Ampere, Hopper and Blackwell on a machine that has no GPU."""

import pytest

pytest.importorskip("triton", reason="Triton is not installed")

from tests.model.gpu.support.compiling import output_of


@pytest.mark.parametrize(
    "capability", [80, *(pytest.param(each, marks=pytest.mark.grid) for each in (90, 120))]
)
def test_every_kernel_compiles_without_spilling(capability: int, pytestconfig: pytest.Config):
    """Once for each state of the sources: the compiler's output for the same ones is kept."""
    arguments = "--first", "--capability", str(capability)
    said = output_of(pytestconfig, "validation.compile_kernels", *arguments)
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
