"""What dividing a model costs: steps of one process, of two stages, and of two ranks side by side.

    python -m benchmarks.speed.divided [--model MODEL] [--dtype bf16] [--attention native]

Steps of each size are timed in turns over all ways, so that whatever else the machine does meets
each alike; the least time of each is printed, in milliseconds.
"""

import argparse
from collections.abc import Sequence
from time import perf_counter

from draftwerk.model.process.build import ModelOptions, build
from draftwerk.model.process.measuring import StepSize
from draftwerk.model.process.role import verification
from draftwerk.model.step.target_runner import TargetRunner

WAYS = {"one process": (1, 1), "2 stages": (2, 1), "2 side by side": (1, 2)}
SIZES = (StepSize(1, 256), StepSize(16, 256), StepSize(128, 0, prompt=True))
BLOCK_SIZE = 16
TURNS = 15


def runner(asked: argparse.Namespace, pipeline: int, tensor: int) -> TargetRunner:
    options = ModelOptions(
        source=asked.model,
        dtype=asked.dtype,
        attention=asked.attention,
        exact=True,
        block_count=64,
        block_size=BLOCK_SIZE,
        measures=False,
        pipeline_parallel=pipeline,
        tensor_parallel=tensor,
    )
    return TargetRunner(build(options, print).parts)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model")
    parser.add_argument("--dtype", default="bf16")
    parser.add_argument("--attention", default="native")
    asked = parser.parse_args(arguments)
    runners = {name: runner(asked, *way) for name, way in WAYS.items()}
    for size in SIZES:
        least = dict.fromkeys(runners, float("inf"))
        for _ in range(TURNS):
            for name, one in runners.items():
                begun = perf_counter()
                one.step(verification(size, BLOCK_SIZE))
                least[name] = min(least[name], 1e3 * (perf_counter() - begun))
        words = ", ".join(f"{name} {ms:.2f}" for name, ms in least.items())
        print(f"{size.tokens} tokens after {size.context}: {words} ms", flush=True)


if __name__ == "__main__":
    main()
