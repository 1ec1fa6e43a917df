"""Counts of a step against torch's own FLOP counter, on the reference forward."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from draftwerk.model.attention.reference import attend
from draftwerk.model.batch.builder import BatchBuilder
from draftwerk.model.native.trials import model_shape
from draftwerk.model.reference.forward import TorchForward
from draftwerk.model.reference.kv_pages import allocate
from draftwerk.speculative.costs.work import StepLoad
from draftwerk.speculative.rounds import NO_DRAFT, Draft, chain
from tests.model.native.models import random_weights, tiny_config

CPU = torch.device("cpu")
TREE = Draft((1, 2, 3, 4, 5), (-1, 0, 0, -1, 3), ("x",) * 5)
ROWS = {
    "one token": [(5, 1, NO_DRAFT)],
    "decoding": [(17, 1, NO_DRAFT), (40, 1, NO_DRAFT), (3, 1, NO_DRAFT)],
    "a prompt": [(0, 33, NO_DRAFT)],
    "a chunk beside drafts": [(64, 20, NO_DRAFT), (30, 1, chain((1, 2, 3), "x")), (50, 1, TREE)],
}


def built(rows: list[tuple[int, int, Draft]]) -> BatchBuilder:
    builder = BatchBuilder(16)
    for number, (start, count, draft) in enumerate(rows):
        blocks = tuple(range(8 * number, 8 * number + 8))
        builder.add([1] * count, start, blocks, draft, samples=count == 1)
    return builder


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("heads", [(6, 2), (4, 4)])
def test_flops_are_those_that_torch_counts(name: str, heads: tuple[int, int]) -> None:
    config = tiny_config(num_heads=heads[0], num_kv_heads=heads[1])
    forward = TorchForward(config, random_weights(config), attend)
    forward.linear.tile = 0  # padded rows would be counted as well
    pages = allocate(config, 64, 16, torch.float32, CPU)
    builder = built(ROWS[name])
    batch = builder.batch(CPU)
    with FlopCounterMode(display=False) as counter:
        forward(batch, pages)
    shape, load = model_shape(config, 4.0, 4.0), builder.load()
    # The reference computes scores of what a token may not attend to, and masks them.
    whole = sum(
        int(new) * int(length)
        for new, length in zip(batch.row_starts.diff(), batch.kv_lengths, strict=True)
    )
    rectangle = shape.attention_flops(StepLoad(outputs=load.outputs, context_tokens=whole))
    assert counter.get_total_flops() == shape.product_flops(load) + rectangle
    assert load.context_tokens == visible(batch.row_starts, batch.kv_lengths, batch.ancestors)


def visible(row_starts: torch.Tensor, kv_lengths: torch.Tensor, ancestors: torch.Tensor) -> int:
    """Count what the tokens of a batch may attend to, by their masks."""
    total = 0
    for row, length in enumerate(kv_lengths.tolist()):
        first, last = row_starts[row : row + 2].tolist()
        prefix = length - (last - first)
        for index, mask in enumerate(ancestors[first:last].tolist()):
            total += prefix + (index + 1 if mask == -1 else mask.bit_count())
    return total


@pytest.mark.parametrize("name", ROWS)
def test_a_step_reads_every_slot_of_its_rows(name: str) -> None:
    builder = built(ROWS[name])
    load = builder.load()
    assert load.tokens == len(builder.tokens)
    assert load.outputs == len(builder.outputs)
    assert load.kv_tokens >= int(builder.batch(CPU).kv_lengths.sum())
