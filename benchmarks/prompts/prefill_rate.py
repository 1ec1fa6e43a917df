"""Prefill of this checkout against another one's, a prompt at a time in turns.

    python -m benchmarks.prompts.prefill_rate --before ../other [--tokens 2048] [--chunk 256]
        [--pairs 15]

The native forward pass alone, on random weights in the default model's shape: no engine and no
sampling, so what differs is the pass. Each checkout has a process; a pair is one prompt in each,
the first of them by turns, and the ratio is the median over pairs.
"""

import argparse
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from statistics import median
from time import perf_counter

import torch

from benchmarks.kernels import default_shape, one_row, random_weights
from draftwerk.model.native.forward import NativeForward
from draftwerk.model.native.pool import Pool
from draftwerk.model.reference.kv_pages import allocate

WORKER = "import runpy, sys; runpy.run_path(sys.argv[1], run_name='worker')"


def work(dtype: str, tokens: int, chunk: int) -> None:
    """Answer each line of input with the milliseconds of a prompt."""
    config = default_shape()
    torch.manual_seed(0)
    model = NativeForward(config, random_weights(config), dtype, Pool())
    pages = allocate(
        config, tokens // 16 + 1, 16, model.page_dtype, torch.device("cpu"), model.page_width
    )
    stops = [*range(chunk, tokens, chunk), tokens]
    batches = [
        one_row(stop - start, stop, int(stop == tokens))
        for start, stop in zip([0, *stops], stops, strict=False)
    ]
    batches = [
        replace(batch, positions=batch.positions.contiguous(), slots=batch.slots.contiguous())
        for batch in batches
    ]
    for _ in sys.stdin:
        begun = perf_counter()
        for batch in batches:
            model(batch, pages)
        print(1e3 * (perf_counter() - begun), flush=True)


def start(folder: Path, arguments: argparse.Namespace) -> "subprocess.Popen[str]":
    """Start a worker with a checkout's package."""
    sizes = [arguments.dtype, str(arguments.tokens), str(arguments.chunk)]
    return subprocess.Popen(
        [sys.executable, "-c", WORKER, str(Path(__file__).resolve()), *sizes],
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def prefill_ms(worker: "subprocess.Popen[str]") -> float:
    """Return what one prompt takes."""
    assert worker.stdin is not None and worker.stdout is not None
    worker.stdin.write("\n")
    worker.stdin.flush()
    return float(worker.stdout.readline())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--before", required=True, type=Path, help="another checkout, set up")
    parser.add_argument("--dtype", default="bf16")
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--chunk", type=int, default=256)
    parser.add_argument("--pairs", type=int, default=15)
    arguments = parser.parse_args()
    workers = start(arguments.before, arguments), start(Path.cwd(), arguments)
    for worker in workers:
        prefill_ms(worker)
    times: tuple[list[float], list[float]] = ([], [])
    for pair in range(arguments.pairs):
        for which in (0, 1) if pair % 2 else (1, 0):
            times[which].append(prefill_ms(workers[which]))
    for worker in workers:
        worker.kill()
        worker.wait()
    ratios = sorted(before / after for before, after in zip(*times, strict=True))
    tenth = len(ratios) // 10
    print(f"{arguments.tokens} tokens in chunks of {arguments.chunk}, {arguments.dtype}")
    print(f"before  {median(times[0]):8.1f} ms\nafter   {median(times[1]):8.1f} ms")
    print(f"before / after {median(ratios):.3f} ({ratios[tenth]:.3f} .. {ratios[-1 - tenth]:.3f})")


if __name__ == "__main__":
    main()
elif __name__ == "worker":
    work(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
