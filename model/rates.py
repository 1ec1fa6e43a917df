"""A model's shape as its cost depends on it, and what this machine does at most."""

from collections.abc import Callable
from time import perf_counter

from draftwerk.model.batch.batch import Pages
from draftwerk.model.checkpoint.config import ModelConfig
from draftwerk.model.native.forward import NativeForward
from draftwerk.model.native.library import library
from draftwerk.model.native.pool import Pool
from draftwerk.speculative.costs.roofline import MachineRates, Roofline
from draftwerk.speculative.costs.work import ModelShape

PEAK_STEPS = 20_000
"""Of chains of multiply-adds in registers: about a millisecond."""
PEAK_READINGS = 5


def model_shape(config: ModelConfig, weight_bytes: float, kv_bytes: float) -> ModelShape:
    """Return a model's shape; `weight_bytes` is what a weight takes, `kv_bytes` a key's number."""
    return ModelShape(
        layer_count=config.layer_count,
        hidden_size=config.hidden_size,
        num_heads=config.num_heads,
        num_kv_heads=config.num_kv_heads,
        head_size=config.head_size,
        ffn_size=config.ffn_size,
        vocab_size=config.vocab_size,
        weight_bytes=weight_bytes,
        kv_bytes=kv_bytes,
    )


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
    rates = MachineRates(flops_per_s=peak_flops(pool, forward.format), bytes_per_s=1e3 * size / ms)
    return Roofline(shape=model_shape(config, size / elements, kv_bytes), rates=rates)


def peak_flops(pool: Pool, weight_format: int, clock: Callable[[], float] = perf_counter) -> float:
    """Return the most FLOP/s of products in a format, measured in registers on all threads."""
    rates: list[float] = []
    for _ in range(PEAK_READINGS):
        begun = clock()
        multiply_adds = library().measure_multiply_adds(pool.handle, weight_format, PEAK_STEPS)
        rates.append(2.0 * multiply_adds / (clock() - begun))
    return max(rates)
