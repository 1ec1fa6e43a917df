"""What LoRA adapters cost: a step of sixteen rows with eight adapters, beside the same without.

    python -m benchmarks.speed.lora_cost [--ranks 8 16] [--dtypes bf16 int8]

The model is the default one. Both steps are measured in turns in
one process, so that a busy machine slows them alike. Prints tokens/s of both, medians, and what the
adapters cost; and the same of a prompt's chunk of 256 tokens with one adapter.
"""

import argparse
from dataclasses import replace
from typing import NamedTuple

import torch

from benchmarks.kernels import KV_LENGTH, interleaved, many_rows, one_row, pages_for
from draftwerk.model.batch.batch import Batch
from draftwerk.model.checkpoint.config import ModelConfig
from draftwerk.model.checkpoint.loader import Checkpoint, load
from draftwerk.model.checkpoint.lora.lora_card import adapted_modules
from draftwerk.model.checkpoint.lora.lora_weights import Adapter, LoraMatrices
from draftwerk.model.native.forward import NativeForward
from draftwerk.model.native.native_shape import FORMATS
from draftwerk.model.native.pool import Pool

ROWS, ADAPTERS = 16, 8
CHUNK = 256
ROUNDS = 40


class Cost(NamedTuple):
    """Medians, in milliseconds."""

    without: float
    adapted: float

    def line(self, what: str, tokens: int) -> str:
        """Return a line of the report."""
        rates = (1e3 * tokens / each for each in self)
        before, after = rates
        share = 1 - after / before
        return f"{what:26} {before:9.1f} {after:9.1f} tokens/s {share:7.1%}"


def random_adapter(config: ModelConfig, rank: int) -> Adapter:
    """Return an adapter of all matrices, of small numbers."""
    found: list[LoraMatrices] = []
    for layer in range(config.layer_count):
        for module in adapted_modules(config, layer).values():
            a = torch.randn(rank, module.inputs) * module.inputs**-0.5
            b = torch.randn(module.columns, rank) * 0.01
            found.append(LoraMatrices(layer, module.part, module.first, a, b, 2.0))
    return tuple(found)


def measured(
    config: ModelConfig, forward: NativeForward, batch: Batch, adapters: list[int]
) -> Cost:
    """Return what a step takes without adapters and with those of its rows."""
    pages = pages_for(config, forward, int(batch.block_tables.max()) + 1)
    adapted = replace(batch, adapters=torch.tensor(adapters, dtype=torch.int32))
    runs = [lambda: forward(batch, pages), lambda: forward(adapted, pages)]
    interleaved(runs, 3)
    return Cost(*interleaved(runs, ROUNDS))


def report(model: Checkpoint, dtype: str, rank: int) -> None:
    """Print what adapters of one kind cost."""
    config = model.config
    forward = NativeForward(config, model.weights, dtype, Pool())
    for _ in range(ADAPTERS):
        forward.add_adapter(random_adapter(config, rank))
    adapters = [n % ADAPTERS for n in range(ROWS)]
    rows = measured(config, forward, many_rows(ROWS, KV_LENGTH), adapters)
    print(rows.line(f"{dtype}, rank {rank}, {ROWS} rows", ROWS), flush=True)
    chunk = measured(config, forward, one_row(CHUNK, CHUNK, 1), [3])
    print(chunk.line(f"{dtype}, rank {rank}, a chunk", CHUNK), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure what LoRA adapters cost.")
    parser.add_argument("--ranks", type=int, nargs="+", default=[8, 16])
    parser.add_argument("--dtypes", choices=[*FORMATS], nargs="+", default=["bf16", "int8"])
    arguments = parser.parse_args()
    print("tokens/s without, with, and the cost")
    model = load(None, None)
    for dtype in arguments.dtypes:
        for rank in arguments.ranks:
            report(model, dtype, rank)


if __name__ == "__main__":
    main()
