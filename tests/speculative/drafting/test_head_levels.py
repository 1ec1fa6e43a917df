"""The levels of a draft head's tree that pay."""

import random

from hypothesis import given
from hypothesis import strategies as st

from draftwerk.speculative.drafting.head_levels import (
    ALL_LEVELS,
    TRIAL_EVERY,
    HeadLevels,
    LevelRecord,
)
from draftwerk.speculative.row_parts.feedback import HeadNode
from draftwerk.speculative.sources.draft_head import node_levels

LEVELS = 3
"""Of the trees of a head."""


def taught(shares: list[float], token_ms: float, level_ms: float, trees: int = 400) -> list[int]:
    """Return how many levels each tree of a text was asked for; a level is right in this share of
    the trees in which the one above is."""
    rng, levels, asked = random.Random(1), HeadLevels(LevelRecord()), list[int]()
    for _ in range(trees):
        asked.append(levels.wanted(token_ms, level_ms))
        right = 0
        while right < LEVELS and rng.random() < shares[right]:
            right += 1
        computed = min(LEVELS, asked[-1])
        levels.learn(computed, min(right, computed))
    return asked


def test_nothing_is_known_at_first_and_every_level_is_computed() -> None:
    assert HeadLevels(LevelRecord()).wanted(10.0, 0.3) == ALL_LEVELS


def test_levels_that_are_hardly_ever_right_are_left_out_but_for_trials() -> None:
    late = taught([0.35, 0.1, 0.1], 6.0, 0.3)[200:]
    assert sum(each == 1 for each in late) > len(late) / 2
    assert sum(each == ALL_LEVELS for each in late) >= len(late) // TRIAL_EVERY


def test_levels_that_are_mostly_right_are_computed() -> None:
    assert min(taught([0.9, 0.9, 0.9], 6.0, 0.3)) >= LEVELS


def test_a_level_that_costs_next_to_nothing_is_computed() -> None:
    late = taught([0.4, 0.4, 0.4], 30.0, 0.01)[200:]
    assert sum(each >= LEVELS for each in late) > 0.9 * len(late)


def test_a_text_that_changes_has_its_levels_back() -> None:
    record = LevelRecord()
    levels = HeadLevels(record)
    for _ in range(300):
        levels.learn(min(LEVELS, levels.wanted(6.0, 0.3)), 0)
    assert levels.wanted(6.0, 0.3) == 1 == HeadLevels(record).wanted(6.0, 0.3)
    for _ in range(4 * TRIAL_EVERY):
        computed = min(LEVELS, levels.wanted(6.0, 0.3))
        levels.learn(computed, computed)
    assert min(levels.wanted(6.0, 0.3) for _ in range(TRIAL_EVERY)) >= LEVELS


@given(st.lists(st.integers(0, 40)), st.floats(0, 100), st.floats(0, 100))
def test_at_least_one_level_is_wanted_and_at_most_all(
    trees: list[int], token_ms: float, level_ms: float
) -> None:
    levels = HeadLevels(LevelRecord())
    for accepted in trees:
        assert 1 <= levels.wanted(token_ms, level_ms) <= ALL_LEVELS
        levels.learn(40, accepted)


def test_a_node_is_one_level_below_its_parent() -> None:
    node = HeadNode(-1, 1, (2,), (0,))
    assert node_levels(()) == []
    assert node_levels((node,)) == [1]
    assert node_levels((node, HeadNode(0, 2, (3,), (0,)), HeadNode(0, 4, (3,), (0,)))) == [1, 2, 2]
