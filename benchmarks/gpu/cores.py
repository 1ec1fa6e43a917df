"""How the CPU's engine grows with threads: a token's step, and a prompt, at a 1B model's shape."""

import os
from collections.abc import Callable, Iterator

import torch

from benchmarks.gpu.row_file import Row
from benchmarks.gpu.steps import SMOKE, random_model, shape_of_8b
from benchmarks.gpu.timing import GpuClock
from draftwerk.model.batch.builder import BatchBuilder
from draftwerk.model.native.forward import NativeForward
from draftwerk.model.native.pool import Pool
from draftwerk.model.reference.kv_pages import allocate
from draftwerk.speculative.rounds import NO_DRAFT

SHAPE = {
    **{"hidden_size": 2048, "layer_count": 4, "num_heads": 32, "head_size": 64},
    **{"ffn_size": 8192, "vocab_size": 32_000},
}
"""Llama-3.2-1B's, with a quarter of its layers and of its vocabulary."""
THREADS = (1, 2, 4, 8, 16)
FORMATS = ("bf16", "int4")
PROMPT, BLOCK_SIZE, REPEATS = 512, 16, 5
CPU = torch.device("cpu")


def core_rows(smoke: bool, is_known: Callable[[Row], bool]) -> Iterator[Row]:
    """Yield the milliseconds of steps of one token and of a prompt, by format and threads."""
    counts = [count for count in THREADS if count <= len(os.sched_getaffinity(0))]
    config = shape_of_8b(**(SMOKE if smoke else SHAPE))
    model = random_model(config, torch.bfloat16, CPU)
    prompt, clock = 32 if smoke else PROMPT, GpuClock(CPU, REPEATS)
    for dtype in FORMATS[:1] if smoke else FORMATS:
        for threads in counts[:2] if smoke else counts:
            if is_known({"dtype": dtype, "threads": threads}):
                continue
            forward = NativeForward(config, model.weights, dtype, Pool(threads))
            pages = allocate(
                config, prompt, BLOCK_SIZE, forward.page_dtype, CPU, forward.page_width
            )

            def step_ms(tokens: int, start: int, forward=forward, pages=pages) -> float:
                builder = BatchBuilder(BLOCK_SIZE)
                blocks = tuple(range(-(-(start + tokens) // BLOCK_SIZE)))
                builder.add([1] * tokens, start, blocks, NO_DRAFT, samples=True)
                batch = builder.batch(CPU)
                return clock.wall_us(lambda: forward(batch, pages)) / 1e3

            yield {
                "dtype": dtype,
                "threads": threads,
                "layers": config.layer_count,
                "token_ms": step_ms(1, prompt - 1),
                "prompt_tokens": prompt,
                "prompt_ms": step_ms(prompt, 0),
            }
