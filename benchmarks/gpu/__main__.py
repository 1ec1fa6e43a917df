"""Measure the GPU path; everything beside its floor: `python -m benchmarks.gpu --output gpu.json`.

Parts: `texts` (of the default model beside a CPU's), `steps` (8B shapes, random weights).
`--smoke` runs what can run on a CPU, in Triton's interpreter, at toy sizes: what only a device can
tell is printed as pending.
"""

import argparse
import json
import os
import platform
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

PARTS = ("texts", "steps")
PENDING = ("us", "_over_floor")
"""Ends of the names of figures that only a device can tell."""
TEXTS = 4
TEXT_TOKENS = 96
SMOKE_TEXTS = 1
SMOKE_TEXT_TOKENS = 6
STEPS = [
    *((rows, length, 4096) for rows in (1, 4, 16, 64) for length in (1, 2, 4, 8)),
    (1, 512, 0),
]
"""(rows, new tokens, context); the last is a prefill."""
SMOKE_STEPS = [(1, 1, 40), (2, 4, 40), (1, 24, 0)]
BLOCK_SIZE = 16
DTYPES = ("bf16", "fp16", "fp32", "fp8", "w8a8", "int8", "int4", "stored")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", default=[], help=f"of {', '.join(PARTS)}; default all")
    parser.add_argument("--smoke", action="store_true", help="toy sizes, without a GPU")
    parser.add_argument("--dtype", default="bf16", choices=DTYPES, help="stored: of texts alone")
    parser.add_argument("--kv-dtype", default="auto", choices=["auto", "fp8"], help="of the pages")
    parser.add_argument("--exact", action="store_true", help="in exact mode")
    parser.add_argument("--attention", default="auto", help="the backend of steps")
    parser.add_argument("--output", type=Path, help="a JSON file for the results")
    arguments = parser.parse_args()
    if find_spec("triton") is None:
        sys.exit("benchmarks.gpu: triton is missing; `make .venv/.setup-dev` brings it")
    unknown = set(arguments.parts) - set(PARTS)
    if unknown:
        parser.error(f"unknown parts: {', '.join(sorted(unknown))}")
    if arguments.dtype == "stored" and arguments.parts != ["texts"]:
        parser.error("dtype stored is that of a file: steps make their weights")
    if arguments.smoke:
        os.environ["TRITON_INTERPRET"] = "1"  # before Triton is imported
    import torch

    if not arguments.smoke and not torch.cuda.is_available():
        sys.exit("benchmarks.gpu: torch sees no GPU here; --smoke runs what can run without one")
    found = measure(arguments)
    if arguments.output:
        arguments.output.write_text(json.dumps(found, indent=1))


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Run the parts asked for; return their rows, what they ran on, and its limits."""
    import torch

    from benchmarks.gpu.timing import GpuClock, GpuPlace
    from draftwerk.model.gpu.build import FORMATS
    from draftwerk.model.gpu.graphs import CudaRecorder

    smoke = arguments.smoke
    device = torch.device("cpu" if smoke else "cuda")
    # The interpreter multiplies through NumPy, which has no bfloat16.
    name = "fp32" if smoke else arguments.dtype
    dtype = FORMATS[name].dtype
    clock = GpuClock(device, 1) if smoke else GpuClock(device)
    limits = clock.limits(dtype)
    if not smoke:
        print(f"copy {limits.bytes_s / 1e12:.2f} TB/s, product {limits.flops / 1e12:.1f} TFLOP/s")
    found: dict[str, Any] = {
        "machine": "CPU, interpreted" if smoke else torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "options": {key: str(value) for key, value in vars(arguments).items()},
        "limits": limits._asdict(),
    }
    at = GpuPlace(device, dtype, None if smoke else CudaRecorder(), clock, limits)
    parts: dict[str, Callable[[], list[dict[str, Any]]]] = {
        "texts": lambda: texts(arguments),
        "steps": lambda: steps(arguments, name, at),
    }
    for part in arguments.parts or PARTS:
        print(f"\n{part}")
        found[part] = parts[part]()
        for row in found[part]:
            print("  ".join(f"{key} {_cell(key, row[key], smoke)}" for key in row))
    return found


def texts(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    from benchmarks.gpu.texts import device_rows, text_cases
    from draftwerk.api.core.config import Settings

    sizes = (SMOKE_TEXTS, SMOKE_TEXT_TOKENS) if arguments.smoke else (TEXTS, TEXT_TOKENS)
    settings = Settings(
        device="cpu" if arguments.smoke else "cuda",
        dtype="fp32" if arguments.smoke else arguments.dtype,
        exact=arguments.exact and not arguments.smoke,
    )
    return device_rows(settings, text_cases(*sizes), arguments.smoke)


def steps(arguments: argparse.Namespace, name: str, at: Any) -> list[dict[str, Any]]:
    from benchmarks.gpu.steps import SMOKE, shape_of_8b, step_rows

    cases = SMOKE_STEPS if arguments.smoke else STEPS
    config = shape_of_8b(**(SMOKE if arguments.smoke else {}))
    return step_rows(config, settings_of(arguments, name, cases), at, cases)


def settings_of(arguments: argparse.Namespace, name: str, cases: list[tuple[int, int, int]]) -> Any:
    """Return settings with room for the largest of (rows, new tokens, context)."""
    from draftwerk.model.gpu.build import GpuSettings

    tokens = max(rows * (length + context) for rows, length, context in cases)
    rows_max = max(rows for rows, _, _ in cases)
    return GpuSettings(
        name,
        "triton" if arguments.smoke else arguments.attention,
        arguments.exact,
        block_count=tokens // BLOCK_SIZE + rows_max + 1,
        block_size=BLOCK_SIZE,
        rows_max=rows_max,
        kv_dtype=arguments.kv_dtype,
    )


def _cell(key: str, value: object, smoke: bool) -> str:
    if smoke and key.endswith(PENDING):
        return "pending"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main()
