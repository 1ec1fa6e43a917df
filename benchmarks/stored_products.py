"""Products with a GGUF's own blocks against a plain read of the same bytes.

Run as `python -m benchmarks.stored_products [TYPE ...]`. One thread's processor time, in turns with
the read, medians of rounds.
"""

import argparse
from statistics import median

import numpy as np

from draftwerk.model.checkpoint.stored_matrix import StoredMatrix
from draftwerk.model.native.pool import Pool
from draftwerk.model.native.stored import KINDS, PackedMatrix, packed_size

ROWS = (1, 4, 8, 16, 128)
SOURCES = 64
"""Different rows; the matrix repeats them."""


def matrix_of(kind: str, columns: int, size: int) -> StoredMatrix:
    """Return random blocks of about `size` bytes."""
    one = packed_size([StoredMatrix(kind, (16, columns), np.zeros((16, 1), np.uint8))]) / 16
    generator = np.random.default_rng(0)
    # Every half of the file, whatever the type, is a small positive number with bytes below 0x1c.
    data = generator.integers(0, 0x1C, (SOURCES, int(one) + 64), dtype=np.uint8)
    rows = np.arange(int(size / one) // SOURCES * SOURCES) % SOURCES
    return StoredMatrix(kind, (len(rows), columns), data, rows)


def report(kind: str, columns: int, size: int, rounds: int, pool: Pool) -> str:
    of = matrix_of(kind, columns, size)
    packed = PackedMatrix([of], pool)
    times = [packed.times(ROWS) for _ in range(rounds)]
    read, *products = (median(taken) for taken in zip(*times, strict=True))
    total, macs = packed_size([of]), of.shape[0] * of.shape[1]
    cells = [
        f"{taken / read:6.2f} {macs * rows / taken / 1e9:6.0f}"
        for rows, taken in zip(ROWS, products, strict=True)
    ]
    return f"{kind:7s} {8 * total / macs:6.3f} {total / read / 1e9:6.1f} {' '.join(cells)}"


def main() -> None:
    parser = argparse.ArgumentParser(description="Time the products of stored blocks.")
    parser.add_argument("kinds", nargs="*", default=list(KINDS))
    parser.add_argument("--columns", type=int, default=2048, help="inputs")
    parser.add_argument("--megabytes", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--isa")
    arguments = parser.parse_args()
    pool = Pool(1, arguments.isa)
    print("type      bits   GB/s " + " ".join(f"{n:2d} x read  GM/s" for n in ROWS))
    for kind in arguments.kinds:
        size = arguments.megabytes * 1_000_000
        print(report(kind, arguments.columns, size, arguments.rounds, pool), flush=True)


if __name__ == "__main__":
    main()
