"""A step of one token beside the time that reading all weights takes: the least it can take.

`DRAFTWERK_ISA=avx2 python -m benchmarks.step_floor bf16 [--context TOKENS]` prints both in
milliseconds, medians of interleaved measurements.
"""

import argparse

from benchmarks.kernels import KV_LENGTH, as_served, interleaved, one_row, pages_for
from benchmarks.support.bench import over_floor
from draftwerk.model.checkpoint.loader import load
from draftwerk.model.native.library import library
from draftwerk.model.native.native_shape import FORMATS
from draftwerk.model.native.pool import Pool

ROUNDS = 60


def measure(dtype: str, context: int = KV_LENGTH) -> tuple[float, float]:
    """Return the milliseconds of a step of the default model, and of reading its weights.

    The step's token is behind `context` others.
    """
    model = load(None, None)
    forward = as_served(model, dtype, Pool())
    pages = pages_for(model.config, forward, context // 16 + 2)
    batch = one_row(1, context, 1)
    runs = [lambda: forward(batch, pages), lambda: library().measure_stream(forward.handle)]
    interleaved(runs, 5)
    step, floor = interleaved(runs, ROUNDS)
    return step, floor


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure a step of one token and its floor.")
    parser.add_argument("dtype", choices=[*FORMATS])
    parser.add_argument("--context", type=int, default=KV_LENGTH)
    arguments = parser.parse_args()
    step, floor = measure(arguments.dtype, arguments.context)
    over_floor(step, floor)
    print(f"{step:.3f} {floor:.3f}")


if __name__ == "__main__":
    main()
