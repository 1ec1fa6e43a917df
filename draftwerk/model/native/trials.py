"""Measurements of a machine: the kernels on so many threads, and its peaks in each format."""

from collections.abc import Callable
from dataclasses import replace
from statistics import mean
from time import perf_counter

import msgspec
import torch

from draftwerk.model.batch.batch import Pages
from draftwerk.model.batch.builder import BatchBuilder
from draftwerk.model.checkpoint.config import ModelConfig
from draftwerk.model.checkpoint.weights import Weights
from draftwerk.model.native.forward import NativeForward
from draftwerk.model.native.library import library
from draftwerk.model.native.native_shape import FORMATS
from draftwerk.model.native.pool import Pool
from draftwerk.model.reference.kv_pages import allocate
from draftwerk.speculative.costs.roofline import MachineRates, Roofline
from draftwerk.speculative.costs.work import ModelShape
from draftwerk.speculative.rounds import NO_DRAFT

STEPS = (1, 16)
"""Tokens of the steps timed: one is bound by memory, the other by arithmetic."""
REPEATS = 3
BLOCK_SIZE = 16
PEAK_STEPS = 20_000
"""The steps of chains of multiply-adds in registers: about a millisecond."""
PEAK_READINGS = 5
VECTOR_LOOPS = (1, 0)
"""Plain loops of multiply-adds: in registers, and with an operand from memory."""
ALL_LOOPS = (*VECTOR_LOOPS, 2)
"""And by tiles (AMX), which a kernel approaches from afar: for floors, not for forecasts."""


def trial_s(
    config: ModelConfig,
    weights: Weights,
    dtype: str,
    threads: int,
    clock: Callable[[], float] = perf_counter,
) -> float:
    """Return the seconds that the best of a few steps of each size take together."""
    graph = msgspec.structs.replace(config.graph, per_layer_size=0)
    config = msgspec.structs.replace(config, layer_count=1, graph=graph)
    weights = replace(weights, layers=weights.layers[:1])
    forward = NativeForward(config, weights, dtype, Pool(threads))
    pages = allocate(
        config, 1, BLOCK_SIZE, forward.page_dtype, torch.device("cpu"), forward.page_width
    )
    total = 0.0
    for tokens in STEPS:
        layout = BatchBuilder(BLOCK_SIZE)
        layout.add([*range(tokens)], 0, (0,), NO_DRAFT, samples=True)
        batch = layout.batch(torch.device("cpu"))
        taken: list[float] = []
        for _ in range(REPEATS):
            begun = clock()
            forward(batch, pages)
            taken.append(clock() - begun)
        total += min(taken)
    return total


def model_shape(config: ModelConfig, weight_bytes: float, kv_bytes: float) -> ModelShape:
    """Return a model's shape; `weight_bytes` is what a weight takes, `kv_bytes` a key's number.

    Where layers have heads or FFNs of their own sizes it has the mean of them.
    """
    experts, layers = config.experts, range(config.layer_count)
    dense = round(mean(config.dense_size(index) for index in layers))
    if experts is not None:
        dense = experts.shared_ffn_size
    return ModelShape(
        layer_count=config.layer_count,
        without_keys=sum(config.kind(index).mixer != "attention" for index in layers),
        hidden_size=config.hidden_size,
        num_heads=config.num_heads,
        num_kv_heads=round(mean(config.key_heads(index).heads for index in layers)),
        head_size=round(mean(config.key_heads(index).size for index in layers)),
        ffn_size=dense,
        expert_size=experts.ffn_size if experts else 0,
        expert_count=experts.count if experts else 0,
        experts_used=experts.used if experts else 0,
        vocab_size=config.vocab_size,
        weight_bytes=weight_bytes,
        kv_bytes=kv_bytes,
    )


def foretold_ms(share: float, from_disk: float, again: float) -> float:
    """Return the milliseconds of reading what a token needs where a share is in memory by chance.

    It took `from_disk` the first time; `again` is from memory, as far as it holds one token's.
    """
    return share * again + (1.0 - share) * from_disk


def native_roofline(
    config: ModelConfig,
    forward: NativeForward,
    pages: Pages,
    pool: Pool,
    reading: tuple[int, float],
) -> Roofline:
    """Return the roofline of the native kernels; `reading` is (bytes, ms) of all matrices."""
    size, ms = reading
    kv_bytes = forward.page_width * pages.keys.element_size() / config.head_size
    shape = model_shape(config, 1.0, kv_bytes)
    elements = shape.layer_count * shape.layer_weights + shape.head_weights
    attention_format = FORMATS["fp32" if pages.keys.dtype == torch.float32 else "bf16"]
    rates = MachineRates(
        flops_per_s=peak_flops(pool, forward.format),
        bytes_per_s=1e3 * size / ms,
        attention_flops_per_s=peak_flops(pool, attention_format),
    )
    return Roofline(shape=model_shape(config, size / elements, kv_bytes), rates=rates)


def peak_flops(
    pool: Pool,
    weight_format: int,
    clock: Callable[[], float] = perf_counter,
    loops: tuple[int, ...] = VECTOR_LOOPS,
) -> float:
    """Return the most FLOP/s of products in a format, of plain loops on all threads."""
    rates: list[float] = []
    for loop in loops * PEAK_READINGS:
        begun = clock()
        multiply_adds = library().measure_multiply_adds(
            pool.handle, weight_format, loop, PEAK_STEPS
        )
        rates.append(2.0 * multiply_adds / (clock() - begun))
    return max(rates)
