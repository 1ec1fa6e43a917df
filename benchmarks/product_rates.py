"""Products of stored layers beside the processor's own rate of multiply-adds, in CPU time.

`python -m benchmarks.product_rates FOLDER` writes files of random weights there, and measures on
one thread. Other programs do not lengthen CPU time, but by what they take of the memory's pace. The
share is of what vectors can do; what is faster than any plain loop, tiles' too, is refused.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from time import process_time

from benchmarks.kernels import as_served, one_row, pages_for
from benchmarks.support.bench import ResultTable, over_floor
from benchmarks.support.mixed_gguf import FILE_TYPES, FileShape, write
from draftwerk.model.checkpoint.loader import load
from draftwerk.model.native.pool import Pool
from draftwerk.model.native.trials import ALL_LOOPS, VECTOR_LOOPS, model_shape, peak_flops

SHAPES = {"135M": FileShape(8, 576, 1536, 9, 3), "1B": FileShape(2, 2048, 8192, 32, 8)}
"""The widths of the default model and of Llama 3.2's 1B, with fewer layers."""
ROWS = (1, 2, 4, 8, 12, 16, 32, 128)
REPEATS = 9


def cpu_s(run: Callable[[], object]) -> float:
    """Return the least CPU time of a run."""
    taken: list[float] = []
    for _ in range(REPEATS):
        begun = process_time()
        run()
        taken.append(process_time() - begun)
    return min(taken)


def shares_of_peak(path: Path) -> dict[int, tuple[float, float]]:
    """Return (milliseconds, share of the peak) of the layers' products, by rows."""
    model, pool = load(str(path), None, keeps_blocks=True), Pool(1)
    forward = as_served(model, "stored", pool)
    shape = model_shape(model.config, 1.0, 1.0)
    flops = 2.0 * shape.layer_count * shape.layer_weights
    peak, most = (
        peak_flops(pool, forward.format, process_time, loops) for loops in (VECTOR_LOOPS, ALL_LOOPS)
    )
    # Inputs that were never written share one page of zeros, and are read at another pace.
    forward(one_row(max(ROWS), max(ROWS), 1), pages_for(model.config, forward, max(ROWS)))

    def products(rows: int) -> tuple[float, float]:
        taken = cpu_s(lambda: pool.library.measure_linears(forward.handle, rows, 0))
        over_floor(taken, rows * flops / most)
        return 1e3 * taken, rows * flops / taken / peak

    return {rows: products(rows) for rows in ROWS}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    printed = ResultTable(["ms (share of the peak)", *(f"{rows} rows" for rows in ROWS)])
    for name, shape in SHAPES.items():
        for mix in FILE_TYPES:
            path = write(given.folder / f"layers-{name}-{mix}.gguf", shape, mix)
            cells = shares_of_peak(path).values()
            printed.add(f"{name} {mix}", *(f"{ms:.2f} ({share:.2f})" for ms, share in cells))
    print(printed)


if __name__ == "__main__":
    main()
