"""Engine steps at the shapes of an 8B model, its weights random: time, floor, and the gap.

The gap is what a step takes beyond the device's own work: laying the round out, sending it, waiting
for the tokens. A step here is the model process's. Text, tokenising and sockets overlap it;
planning and drafting of the next round do not: they come after it and are not in these figures.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu.timing import GpuPlace
from draftwerk.model.batch.builder import BatchBuilder
from draftwerk.model.checkpoint.config import ModelConfig
from draftwerk.model.checkpoint.loader import Checkpoint
from draftwerk.model.checkpoint.weights import LayerWeights, Weights
from draftwerk.model.gpu.build import GpuSettings, gpu_parts
from draftwerk.model.reference.sampler import SamplingRequest
from draftwerk.model.step.loaded_model import LoadedModel
from draftwerk.speculative.rounds import NO_DRAFT, chain
from draftwerk.speculative.sampling import Sampling


def shape_of_8b(**changes: Any) -> ModelConfig:
    """Return the shape of Llama-3.1-8B."""
    settings: dict[str, Any] = {
        "architecture": "LlamaForCausalLM",
        "vocab_size": 128_256,
        "hidden_size": 4096,
        "layer_count": 32,
        "num_heads": 32,
        "num_kv_heads": 8,
        "head_size": 128,
        "ffn_size": 14_336,
        "context_max": 8192,
        "norm_eps": 1e-5,
    }
    settings |= changes
    size = settings["head_size"]
    frequencies = tuple(500_000.0 ** (-2 * i / size) for i in range(size // 2))
    return ModelConfig(**settings, rope_inverse_frequencies=frequencies)


SMOKE: dict[str, int] = {
    "vocab_size": 301,
    "hidden_size": 64,
    "layer_count": 1,
    "num_heads": 4,
    "num_kv_heads": 2,
    "head_size": 16,
    "ffn_size": 96,
    "context_max": 256,
}


def random_model(config: ModelConfig, dtype: torch.dtype, device: torch.device) -> Checkpoint:
    """Return a model made on the device; its logits stay finite."""

    def matrix(rows: int, columns: int) -> torch.Tensor:
        made = torch.empty(rows, columns, dtype=dtype, device=device)
        return made.normal_(0.0, columns**-0.5)

    def ones() -> torch.Tensor:
        return torch.ones(config.hidden_size, dtype=dtype, device=device)

    hidden, attended = config.hidden_size, config.num_heads * config.head_size
    qkv = attended + 2 * config.num_kv_heads * config.head_size
    shapes = {
        "qkv": (qkv, hidden),
        "output": (hidden, attended),
        "gate_up": (2 * config.ffn_size, hidden),
        "down": (hidden, config.ffn_size),
    }
    layers: list[LayerWeights] = []
    for _ in range(config.layer_count):
        parts: dict[str, Any] = {name: matrix(*shape) for name, shape in shapes.items()}
        layers.append(LayerWeights(attention_norm=ones(), ffn_norm=ones(), **parts))
    head = matrix(config.vocab_size, hidden)
    weights = Weights(matrix(config.vocab_size, hidden), layers, ones(), head)
    return Checkpoint("random", Path(), config, weights)


BITS = {"fp8": 8.0, "w8a8": 8.0, "int8": 8.5, "int4": 5.0}
"""Of a weight in the layers, its share of a block's scale and minimum included."""
HEAD_BITS = {"int8": 8.5, "int4": 8.5}


def weight_count(model: Checkpoint) -> tuple[int, int]:
    """Return how many weights a step multiplies by: in the layers, in the head."""
    layers = sum(tensor.numel() for one in model.weights.layers for tensor in one.matrices)
    return layers, model.weights.lm_head.numel()


def weight_bytes(model: Checkpoint, dtype: str) -> float:
    """Return what one step reads: the layers and the head, each in its format."""
    layers, head = weight_count(model)
    plain = model.weights.lm_head.element_size() * 8.0
    return (layers * BITS.get(dtype, plain) + head * HEAD_BITS.get(dtype, plain)) / 8


def step_rows(
    config: ModelConfig,
    settings: GpuSettings,
    at: GpuPlace,
    cases: list[tuple[int, int, int]],
) -> Iterator[dict[str, Any]]:
    """Measure (rows, new tokens, context) rounds, and a prefill; yield each as it is there."""
    model = random_model(config, at.dtype, at.device)
    read = weight_bytes(model, settings.dtype)
    parameters = sum(weight_count(model))
    parts, chosen = gpu_parts(model, settings, at.recorder, progress=print)
    kv = token_bytes(config, parts)
    for rows, length, context in cases:
        builder = verify_round(settings.block_size, rows, length, context)
        step_us = at.clock.wall_us(lambda builder=builder: _step(parts, builder))
        device_us = at.clock.microseconds(lambda builder=builder: parts.run(builder))
        flops = 2.0 * parameters * rows * length
        yield {
            "attention": chosen.name,
            "dtype": settings.dtype,
            "exact": settings.exact,
            "rows": rows,
            "length": length,
            "context": context,
            "step_us": step_us,
            "forward_us": device_us,
            "gap_us": step_us - device_us,
            **at.over_floor(step_us, read + rows * (context + length) * kv, flops),
        }


def token_bytes(config: ModelConfig, parts: LoadedModel) -> int:
    """Return what the keys and values of a token take."""
    numbers = 2 * config.layer_count * config.num_kv_heads * config.head_size
    return numbers * parts.pages.keys.element_size()


def verify_round(block_size: int, rows: int, length: int, context: int) -> BatchBuilder:
    """Return verify rows with a context, or, with none, prefill chunks of `length`."""
    builder, width = BatchBuilder(block_size), -(-(context + length) // block_size)
    for row in range(rows):
        blocks = tuple(range(row * width, (row + 1) * width))
        if context:
            draft = chain((1,) * (length - 1), "benchmark") if length > 1 else NO_DRAFT
            builder.add([1], context, blocks, draft, samples=True)
        else:
            builder.add([1] * length, 0, blocks, NO_DRAFT, samples=True)
    return builder


def _step(parts: LoadedModel, builder: BatchBuilder) -> None:
    logits = parts.run(builder)
    greedy = Sampling(temperature=0.0)
    parts.backend.choose(logits, [SamplingRequest(row, row, greedy) for row in range(len(logits))])
