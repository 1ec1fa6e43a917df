"""How fast the kernels are on so many threads: one layer and the head of the model, timed."""

from dataclasses import replace
from time import perf_counter

import msgspec
import torch

from draftwerk.model.batch.builder import BatchBuilder
from draftwerk.model.checkpoint.config import ModelConfig
from draftwerk.model.checkpoint.weights import Weights
from draftwerk.model.native.forward import NativeForward
from draftwerk.model.native.pool import Pool
from draftwerk.model.reference.kv_pages import allocate
from draftwerk.speculative.protocol.rounds import NO_DRAFT

STEPS = (1, 16)
"""Tokens of the steps timed: one is bound by memory, the other by arithmetic."""
REPEATS = 3
BLOCK_SIZE = 16


def trial_s(config: ModelConfig, weights: Weights, dtype: str, threads: int) -> float:
    """Return the seconds that the best of a few steps of each size take together."""
    config = msgspec.structs.replace(config, layer_count=1)
    weights = replace(weights, layers=weights.layers[:1])
    forward = NativeForward(config, weights, dtype, Pool(threads))
    pages = allocate(
        config, 1, BLOCK_SIZE, forward.page_dtype, torch.device("cpu"), forward.page_width
    )
    total = 0.0
    for tokens in STEPS:
        layout = BatchBuilder(BLOCK_SIZE)
        layout.add([0] * tokens, 0, (0,), NO_DRAFT, samples=True)
        batch = layout.batch(torch.device("cpu"))
        taken: list[float] = []
        for _ in range(REPEATS):
            begun = perf_counter()
            forward(batch, pages)
            taken.append(perf_counter() - begun)
        total += min(taken)
    return total
