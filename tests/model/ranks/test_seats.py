"""A group's memory has a meeting for each stage, and one for each pair beside each other."""

from types import SimpleNamespace
from typing import Any

from draftwerk.model.checkpoint.shard import Grid
from draftwerk.model.ranks.seats import RankSlots, group_bytes

CONFIG: Any = SimpleNamespace(num_heads=4, head_size=8, hidden_size=32, ffn_size=64, vocab_size=100)


def test_memory_grows_by_two_meetings_a_stage() -> None:
    one, two, three = (group_bytes(CONFIG, Grid(stages, 2)) for stages in (1, 2, 3))
    assert one > 0 and (two, three) == (3 * one, 5 * one)


def test_a_rank_that_meets_nobody_gives_nothing_up() -> None:
    slots = RankSlots()
    slots.give_up()
    assert slots.columns_handle is None
