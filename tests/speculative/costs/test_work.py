"""Counts of a step, against their definitions and by the shape's properties."""

import random

import pytest
from msgspec.structs import replace

from draftwerk.speculative.costs.work import KV_TILE, ModelShape, StepLoad, attended, slots_read

SHAPE = ModelShape(
    layer_count=30,
    hidden_size=576,
    num_heads=9,
    num_kv_heads=3,
    head_size=64,
    ffn_size=1536,
    vocab_size=49152,
    weight_bytes=2.0,
    kv_bytes=2.0,
)
"""The default model's."""


@pytest.mark.parametrize("start", [0, 1, 15, 16, 100])
@pytest.mark.parametrize("count", [1, 2, 15, 16, 17, 48, 100])
def test_rows_are_counted_token_by_token_and_tile_by_tile(start: int, count: int) -> None:
    assert attended(start, count) == sum(start + index + 1 for index in range(count))
    ends = [min(first + KV_TILE, count) for first in range(0, count, KV_TILE)]
    assert slots_read(start, count) == sum(start + end for end in ends)


def test_a_load_is_the_sum_of_its_rows() -> None:
    rng = random.Random(2)
    rows = [(rng.randint(0, 500), rng.randint(1, 99), rng.randint(0, 1)) for _ in range(20)]
    whole, total = StepLoad(), StepLoad()
    for row in rows:
        whole = whole.with_row(*row)
        total += StepLoad().with_row(*row)
    assert whole == total
    assert whole.tokens == sum(count for _, count, _ in rows)


def test_a_row_may_be_cut_into_chunks_without_another_token_being_attended_to() -> None:
    for cut in range(1, 100):
        assert attended(0, 100) == attended(0, cut) + attended(cut, 100 - cut)


def test_the_default_models_weights_are_all_its_matrices() -> None:
    shape = SHAPE
    # 134 515 008 parameters, less the 61 norms of 576.
    assert shape.layer_count * shape.layer_weights + shape.head_weights == 134_515_008 - 61 * 576
    assert shape.token_bytes == 30 * 2 * 3 * 64 * 2
    # Without logits, the last layer has keys and values alone.
    whole = 29 * shape.layer_weights + shape.qkv_weights
    assert shape.weights_read(StepLoad(256, 0)) == 2.0 * whole
    every = 30 * shape.layer_weights + shape.head_weights
    assert shape.weights_read(StepLoad(256, 1)) == 2.0 * every


def test_experts_are_read_as_often_as_tokens_choose_them():
    dense = replace(SHAPE, ffn_size=0)
    shape = replace(dense, expert_size=768, expert_count=128, experts_used=8)
    expert = 3 * shape.hidden_size * 768
    assert shape.layer_weights == dense.layer_weights + 8 * expert
    assert shape.layer_read(1) == pytest.approx(shape.layer_weights)
    two = 128 * (1 - (1 - 8 / 128) ** 2)
    assert shape.layer_read(2) == pytest.approx(dense.layer_weights + two * expert)
    every = dense.layer_weights + 128 * expert
    assert shape.layer_read(512) == pytest.approx(every)
    assert shape.product_flops(StepLoad(4, 4)) > 4 * dense.product_flops(StepLoad(1, 1))
