"""A model is divided without gaps or overlaps, and nothing is promised that cannot be."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftwerk.model.checkpoint.shard import (
    Grid,
    Shard,
    columns,
    divided,
    head_shares,
    shard_of,
    whole,
)
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk_tools.trials.tiny_model import tiny_config

CONFIG = tiny_config()


def joined(parts: list[range]) -> list[int]:
    return [each for part in parts for each in part]


@given(st.integers(0, 300), st.integers(1, 12))
def test_columns_are_covered_once_and_in_order(size: int, parts: int) -> None:
    for found in (columns(size, parts), divided(size, parts)):
        assert len(found) == parts
        assert joined(found) == list(range(size))


@given(st.integers(2, 12), st.integers(16, 300))
def test_where_there_is_enough_no_rank_is_left_without_columns(parts: int, unit: int) -> None:
    assert all(columns(parts * unit, parts))


@given(st.integers(1, 8), st.integers(1, 8), st.data())
def test_every_query_head_is_with_its_kv_head(
    group: int, kv_heads: int, data: st.DataObject
) -> None:
    heads = group * kv_heads
    parts = data.draw(st.integers(1, heads))
    found = head_shares(heads, kv_heads, parts)
    assert joined([one for one, _ in found]) == list(range(heads))
    assert {kv for _, part in found for kv in part} == set(range(kv_heads))
    for own, kv in found:
        assert own
        assert kv
        assert {head // group for head in own} == set(kv)
        # The kernels' own rule: as many query heads for each KV head.
        assert len(own) % len(kv) == 0


@pytest.mark.parametrize("grid", [Grid(1, 1), Grid(2, 1), Grid(1, 3), Grid(2, 2), Grid(2, 6)])
def test_all_ranks_together_are_the_model(grid: Grid) -> None:
    shards = [shard_of(CONFIG, grid, rank) for rank in range(grid.size)]
    for column in range(grid.tensor):
        ranks = [rank for rank in range(grid.size) if grid.column(rank) == column]
        stages = [shards[rank] for rank in sorted(ranks, key=grid.stage)]
        assert joined([shard.layers for shard in stages]) == list(range(CONFIG.layer_count))
        assert [shard.is_first for shard in stages] == [True] + [False] * (len(stages) - 1)
        assert [shard.is_last for shard in stages] == [False] * (len(stages) - 1) + [True]
    last = shards[: grid.tensor]
    assert joined([shard.vocab for shard in last]) == list(range(CONFIG.vocab_size))
    assert joined([shard.hidden for shard in last]) == list(range(CONFIG.hidden_size))
    assert joined([shard.ffn for shard in last]) == list(range(CONFIG.ffn_size))


def test_the_rank_that_samples_is_in_the_last_stage() -> None:
    assert shard_of(CONFIG, Grid(2, 2), 0).is_last


def test_one_process_has_all_of_it() -> None:
    found = whole(CONFIG)
    assert isinstance(found, Shard)
    assert (len(found.layers), len(found.heads), len(found.vocab)) == (2, 6, 203)


@pytest.mark.parametrize(
    ("grid", "words"),
    [
        (Grid(3, 1), "pipeline_parallel 3: the model has 2 layers"),
        (Grid(1, 7), "tensor_parallel 7: the model has 6 attention heads"),
    ],
)
def test_more_ranks_than_parts_are_refused_by_name(grid: Grid, words: str) -> None:
    with pytest.raises(Refused, match=words):
        shard_of(CONFIG, grid, 0)


def test_smollm2_has_three_ranks_of_three_heads() -> None:
    config = msgspec.structs.replace(CONFIG, num_heads=9, num_kv_heads=3)
    found = [shard_of(config, Grid(1, 3), rank).heads for rank in range(3)]
    assert found == [range(3), range(3, 6), range(6, 9)]
