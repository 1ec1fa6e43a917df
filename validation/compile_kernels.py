"""Compile every kernel ahead of time, without a GPU: `python -m validation.compile_kernels`.

Prints registers, spills and shared memory of each, as `ptxas` and `cuobjdump` from the Triton wheel
count them, and the share of a core's warps that can run at once. A kernel that spills would be
slow; one that does not compile would fail at the start.
"""

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from validation.kernel_cases import Case, cases

WARP = 32
REGISTERS = 65_536
"""Of a core (a streaming multiprocessor), in each of the cards below."""


class Core(NamedTuple):
    """What a core of a compute capability has, from NVIDIA's table of technical specifications."""

    warps: int
    shared_bytes: int
    block_shared_bytes: int
    """That one block may take."""


CORES = {
    80: Core(64, 164 << 10, 163 << 10),
    90: Core(64, 228 << 10, 227 << 10),
    120: Core(48, 100 << 10, 99 << 10),
}
LEAST_OCCUPANCY = 0.06
"""One block of four warps: less is a kernel that does not fit."""
FLOATS = ("scale_log2", "eps")
TYPES = {
    "slots": "*i32",
    "tables": "*i32",
    "starts": "*i32",
    "lengths": "*i32",
    "paths": "*i32",
    "tokens": "*i32",
    "masks": "*i64",
    "cos": "*fp32",
    "sin": "*fp32",
    "part_out": "*fp32",
    "part_max": "*fp32",
    "part_sum": "*fp32",
    "parts": "*fp32",
    "steps": "*fp16",
    "minimum_steps": "*fp16",
    "high": "*u8",
    "index": "*i32",
    "logits": "*fp32",
    "bests": "*fp64",
    "totals": "*fp64",
    "settings": "*fp64",
}
"""Arguments that are neither activations nor counts, by name."""
TENSORS = (
    *("query", "keys", "values", "out", "residual", "delta", "weight", "gate_up", "qkv"),
    *("query_norm", "key_norm"),
)
"""Arguments in the activations' dtype."""


STRIDES = ("query_stride", "page_stride", "slot_stride", "row_stride")
"""Counts that Triton finds to be multiples of 16 at run time, and compiles for."""


class KernelReport(NamedTuple):
    """What one compiled kernel needs of a core."""

    name: str
    constants: dict[str, Any]
    types: Mapping[str, str]
    warps: int
    registers: int
    spill_bytes: int
    shared_bytes: int

    def occupancy(self, core: Core) -> float:
        """Return the share of a core's warps that can run at once; 0 where no block fits."""
        if self.shared_bytes > core.block_shared_bytes:
            return 0.0
        by_registers = REGISTERS // (self.registers * self.warps * WARP)
        by_memory = core.shared_bytes // max(1, self.shared_bytes)
        return min(by_registers, by_memory, core.warps // self.warps) * self.warps / core.warps


def compiled(case: Case, capability: int, dtype: str) -> KernelReport:
    """Compile one case for sm_`capability`."""
    names = case.kernel.arg_names
    types = {name: f"*{dtype}" for name in TENSORS} | TYPES | dict.fromkeys(FLOATS, "fp32")
    types |= case.types
    signature = {
        name: "constexpr" if name in case.constants else types.get(name, "i32") for name in names
    }
    # Torch's allocations are aligned, and so is every row of a model's tensors.
    aligned = [["tt.divisibility", 16]]
    attributes = {
        (i,): aligned
        for i, name in enumerate(names)
        if name in STRIDES
        or (signature[name].startswith("*") and not _lies_anywhere(case.kernel, i))
    }
    source = ASTSource(
        fn=case.kernel,
        signature=signature,
        constexprs={(names.index(name),): value for name, value in case.constants.items()},
        attrs=attributes,
    )
    options = {"num_warps": case.warps, "num_stages": case.stages}
    made = triton.compile(source, target=GPUTarget("cuda", capability, WARP), options=options)
    registers, spills = _resources(made.asm["cubin"])
    shared = made.metadata.shared
    return KernelReport(
        case.kernel.__name__,
        case.constants,
        case.types,
        case.warps,
        registers,
        spills,
        shared,
    )


def _lies_anywhere(kernel: Any, argument: int) -> bool:
    return kernel.params[argument].do_not_specialize_on_alignment


def _resources(cubin: bytes) -> tuple[int, int]:
    tool = Path(triton.language.__file__).parent.parent / "backends/nvidia/bin/cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        said = subprocess.run(
            [tool, "--dump-resource-usage", file.name], capture_output=True, text=True, check=True
        ).stdout
    usage = {key: int(value) for key, value in re.findall(r"\b(REG|STACK|LOCAL):(\d+)", said)}
    return usage["REG"], usage["STACK"] + usage["LOCAL"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--capability", type=int, default=90, choices=CORES, help="90 is Hopper")
    parser.add_argument("--dtype", default="bf16", choices=["bf16", "fp16", "fp32"])
    parser.add_argument("--kernel", default="", help="only kernels whose name contains this")
    parser.add_argument("--first", action="store_true", help="one case of each kernel and form")
    arguments = parser.parse_args()
    spilled = idle = 0
    core = CORES[arguments.capability]
    seen: set[tuple[str, str]] = set()
    for case in cases():
        name = case.kernel.__name__, case.variant
        if arguments.kernel not in name[0] or (arguments.first and name in seen):
            continue
        seen.add(name)
        report = compiled(case, arguments.capability, arguments.dtype)
        spilled += report.spill_bytes > 0
        idle += report.occupancy(core) < LEAST_OCCUPANCY
        chosen = {**report.constants, **report.types}
        constants = " ".join(f"{key}={value}" for key, value in chosen.items())
        print(
            f"{report.name:16s} registers {report.registers:3d}  spills {report.spill_bytes} B  "
            f"shared {report.shared_bytes:6d} B  warps {report.occupancy(core):4.0%}  {constants}",
            flush=True,
        )
    print(f"{len(seen)} kernels compile; {spilled} cases spill, {idle} leave a core idle")
    sys.exit(1 if spilled or idle else 0)


if __name__ == "__main__":
    main()
