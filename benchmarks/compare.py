"""Products and steps of several source trees, measured in turns.

`DRAFTWERK_ISA=avx2 python -m benchmarks.compare OLD_TREE . --model FILE.gguf` prints, for each
number of rows, the median milliseconds of each tree's matrix products and, behind the first's, the
median of the ratios to the first; `step` is a whole step of one token behind others. Each tree
has a process of its own, which imports this file and its tree's packages, and waits while another
is measured.
"""

import argparse
import os
import sys
from pathlib import Path
from statistics import median
from subprocess import PIPE, Popen
from time import perf_counter

from benchmarks.kernels import KV_LENGTH, one_row, pages_for
from draftwerk.model.checkpoint.loader import load
from draftwerk.model.native.forward import NativeForward
from draftwerk.model.native.library import library
from draftwerk.model.native.pool import Pool

STEP = "step"
RUNS_SECONDS = 0.1
"""How long a tree is measured before the other has its turn."""


class Tree:
    """A process that measures with one tree's package."""

    def __init__(self, root: Path, model: str, dtype: str) -> None:
        command = [sys.executable, "-P", str(Path(__file__).resolve()), "", model, dtype]
        environment = {**os.environ, "PYTHONPATH": str(root.resolve())}
        self._process = Popen(command, env=environment, stdin=PIPE, stdout=PIPE)

    def measure(self, what: str) -> float:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(f"{what}\n".encode())
        self._process.stdin.flush()
        return float(self._process.stdout.readline())

    def close(self) -> None:
        self._process.communicate()


def serve(model: str, dtype: str) -> None:
    """Answer each line, a number of rows or `step`, with the median milliseconds of a few runs."""
    given = load(model or None, None, keeps_blocks=dtype == "stored")
    forward = NativeForward(given.config, given.weights, dtype, Pool())
    pages, batch = pages_for(given.config, forward), one_row(1, KV_LENGTH, 1)
    for line in sys.stdin:
        what, times = line.strip(), list[float]()
        while sum(times) < RUNS_SECONDS:
            begun = perf_counter()
            if what == STEP:
                forward(batch, pages)
            else:
                library().measure_linears(forward.handle, int(what), int(what))
            times.append(perf_counter() - begun)
        print(median(times) * 1e3, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure source trees in turns.")
    parser.add_argument("trees", type=Path, nargs="+", help="the first is what others are beside")
    parser.add_argument("--model", default="", help="a file; without, the default model")
    parser.add_argument("--dtype", default="stored")
    parser.add_argument("--rows", nargs="+", default=[STEP, "1", "4", "16", "64", "256"])
    parser.add_argument("--repeats", type=int, default=9)
    given = parser.parse_args()
    trees = [Tree(root, given.model, given.dtype) for root in given.trees]
    for what in given.rows:
        rounds = [[tree.measure(what) for tree in trees] for _ in range(given.repeats + 1)][1:]
        first, *others = zip(*rounds, strict=True)
        print(f"{what:>5} {median(first):9.3f}", end="")
        for times in others:
            ratio = median(new / old for old, new in zip(first, times, strict=True))
            print(f" {median(times):9.3f} ({ratio:.3f})", end="")
        print(flush=True)
    for tree in trees:
        tree.close()


if __name__ == "__main__":
    serve(*sys.argv[2:]) if sys.argv[1:2] == [""] else main()
