"""Measure the GPU path; everything beside its floor: `python -m benchmarks.gpu --rows gpu.jsonl`.

Parts: `software` (what is installed), `capture` (graphs beside plain launches), `texts` (of the
default model beside a CPU's), `steps` (8B shapes, random weights), `cores` (the CPU by threads).
`visit` runs all of it and more within some minutes, `carry` lays out what must travel there, and
`rehearse` visits without a card from what was laid out alone.
`--smoke` runs what can run on a CPU, in Triton's interpreter, at toy sizes: what only a device can
tell is printed as pending.
"""

import argparse
import os
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.gpu.interpreting import take_arrays_of_one
from benchmarks.gpu.row_file import Row, RowFile

PARTS = ("software", "capture", "texts", "steps", "cores")
PENDING = ("us", "_over_floor")
"""Ends of the names of figures that only a device can tell."""
TEXTS = 4
TEXT_TOKENS = 96
SMOKE_TEXTS = 1
SMOKE_TEXT_TOKENS = 6
FIRST_STEPS = [(rows, length, 4096) for rows in (1, 16) for length in (1, 8)]
STEPS = [
    *FIRST_STEPS,
    (1, 512, 0),
    *((rows, length, 4096) for rows in (1, 4, 16, 64) for length in (1, 2, 4, 8)),
]
STEPS = [*dict.fromkeys(STEPS)]
"""(rows, new tokens, context), the most telling first; one is a prefill."""
SMOKE_STEPS = [(1, 1, 40), (2, 4, 40), (1, 24, 0)]
BLOCK_SIZE = 16
DTYPES = ("bf16", "fp16", "fp32", "fp8", "w8a8", "int8", "int4", "stored")


def main() -> None:
    if sys.argv[1:2] == ["visit"]:
        from benchmarks.gpu.visit import main as visit

        sys.exit(visit(sys.argv[2:]))
    if sys.argv[1:2] == ["carry"]:
        from benchmarks.gpu.carry import main as carry

        sys.exit(carry(sys.argv[2:]))
    if sys.argv[1:2] == ["rehearse"]:
        from benchmarks.gpu.rehearse import main as rehearse

        sys.exit(rehearse(sys.argv[2:]))
    arguments = _arguments()
    if find_spec("triton") is None:
        sys.exit("benchmarks.gpu: triton is missing; `make .venv/.setup-dev` brings it")
    if arguments.smoke:
        os.environ["TRITON_INTERPRET"] = "1"  # before Triton is imported
        take_arrays_of_one()
    import torch

    if not arguments.smoke and not torch.cuda.is_available():
        sys.exit("benchmarks.gpu: torch sees no GPU here; --smoke runs what can run without one")
    measure(arguments)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", default=[], help=f"of {', '.join(PARTS)}; default all")
    parser.add_argument("--smoke", action="store_true", help="toy sizes, without a GPU")
    parser.add_argument("--dtype", default="bf16", choices=DTYPES, help="stored: of texts alone")
    parser.add_argument("--kv-dtype", default="auto", choices=["auto", "fp8"], help="of the pages")
    parser.add_argument("--exact", action="store_true", help="in exact mode")
    parser.add_argument("--attention", default="auto", help="the backend of steps")
    parser.add_argument("--block-size", type=int, default=BLOCK_SIZE, help="of the pages of steps")
    parser.add_argument("--rows", type=Path, help="a file for rows; those in it are left out")
    arguments = parser.parse_args()
    unknown = set(arguments.parts) - set(PARTS)
    if unknown:
        parser.error(f"unknown parts: {', '.join(sorted(unknown))}")
    if arguments.dtype == "stored" and arguments.parts != ["texts"]:
        parser.error("dtype stored is that of a file: steps make their weights")
    return arguments


def measure(arguments: argparse.Namespace) -> None:
    """Measure the parts asked for; print rows and keep them as they come."""
    rows = RowFile(arguments.rows)
    made = {
        "software": software,
        "capture": capture,
        "texts": texts,
        "steps": steps,
        "cores": cores,
    }
    for part in arguments.parts or PARTS:
        print(f"\n{part}")
        for row in made[part](arguments, rows):
            rows.add(row)
            print("  ".join(f"{key} {_cell(key, row[key], arguments.smoke)}" for key in row))


def software(arguments: argparse.Namespace, rows: RowFile) -> Iterator[Row]:
    from benchmarks.gpu.software import software_rows

    yield from software_rows()


def capture(arguments: argparse.Namespace, rows: RowFile) -> Iterator[Row]:
    from benchmarks.gpu.capture import capture_rows
    from benchmarks.gpu.steps import SMOKE, shape_of_8b

    shape = SMOKE if arguments.smoke else {"layer_count": 2}
    yield from capture_rows(shape_of_8b(**shape), place_of(arguments))


def cores(arguments: argparse.Namespace, rows: RowFile) -> Iterator[Row]:
    from benchmarks.gpu.cores import core_rows

    yield from core_rows(arguments.smoke, rows.has)


def texts(arguments: argparse.Namespace, rows: RowFile) -> Iterator[Row]:
    from benchmarks.gpu.texts import device_rows, text_cases
    from draftwerk.api.shared.config import Settings

    sizes = (SMOKE_TEXTS, SMOKE_TEXT_TOKENS) if arguments.smoke else (TEXTS, TEXT_TOKENS)
    settings = Settings(
        device="cpu" if arguments.smoke else "cuda",
        dtype="fp32" if arguments.smoke else arguments.dtype,
        exact=arguments.exact and not arguments.smoke,
    )
    yield from device_rows(settings, text_cases(*sizes), arguments.smoke)


def place_of(arguments: argparse.Namespace) -> Any:
    """Return where and with what is measured."""
    import torch

    from benchmarks.gpu.timing import GpuClock, GpuPlace
    from draftwerk.model.gpu.build import FORMATS
    from draftwerk.model.gpu.graphs import CudaRecorder

    smoke = arguments.smoke
    device = torch.device("cpu" if smoke else "cuda")
    dtype = FORMATS[format_of(arguments)].dtype
    clock = GpuClock(device, 1) if smoke else GpuClock(device)
    limits = clock.limits(dtype)
    if not smoke:
        print(f"copy {limits.bytes_s / 1e12:.2f} TB/s, product {limits.flops / 1e12:.1f} TFLOP/s")
    return GpuPlace(device, dtype, None if smoke else CudaRecorder(), clock, limits)


def format_of(arguments: argparse.Namespace) -> str:
    # The interpreter multiplies through NumPy, which has no bfloat16.
    return "fp32" if arguments.smoke else arguments.dtype


def steps(arguments: argparse.Namespace, rows: RowFile) -> Iterator[Row]:
    from benchmarks.gpu.steps import SMOKE, shape_of_8b, step_rows

    cases = SMOKE_STEPS if arguments.smoke else STEPS
    wanted = [
        case
        for case in cases
        if not rows.has(dict(zip(("rows", "length", "context"), case, strict=True)))
    ]
    if wanted:
        config = shape_of_8b(**(SMOKE if arguments.smoke else {}))
        settings = settings_of(arguments, format_of(arguments), wanted)
        yield from step_rows(config, settings, place_of(arguments), wanted)


def settings_of(arguments: argparse.Namespace, name: str, cases: list[tuple[int, int, int]]) -> Any:
    """Return settings with room for the largest of (rows, new tokens, context)."""
    from draftwerk.model.gpu.build import GpuSettings

    tokens = max(rows * (length + context) for rows, length, context in cases)
    rows_max = max(rows for rows, _, _ in cases)
    return GpuSettings(
        name,
        "triton" if arguments.smoke else arguments.attention,
        arguments.exact,
        block_count=tokens // arguments.block_size + rows_max + 1,
        block_size=arguments.block_size,
        rows_max=rows_max,
        kv_dtype=arguments.kv_dtype,
    )


def _cell(key: str, value: object, smoke: bool) -> str:
    if smoke and key.endswith(PENDING):
        return "pending"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main()
