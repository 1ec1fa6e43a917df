"""The weight of a token of each row."""

import math
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from draftwerk.speculative.drafting.budget import CandidateNodes, choose_nodes
from draftwerk.speculative.drafting.token_weights import token_weights
from draftwerk.speculative.scheduler.occupancy import Occupancy

LEFTS = st.lists(st.integers(1, 5000), min_size=1, max_size=64)
SHARES = st.floats(0.0, 1.0)


@given(LEFTS, SHARES, SHARES)
def test_the_mean_is_one_and_no_weight_is_below_the_cost_it_takes_away(
    tokens_left: list[int], occupancy: float, own_share: float
) -> None:
    found = token_weights(tokens_left, occupancy, own_share)
    assert math.isclose(sum(found), len(tokens_left))
    assert all(weight >= min(own_share, 1.0) - 1e-9 for weight in found)


@given(LEFTS, SHARES, SHARES)
def test_the_further_behind_the_more_weight(
    tokens_left: list[int], occupancy: float, own_share: float
) -> None:
    order = sorted(zip(tokens_left, token_weights(tokens_left, occupancy, own_share), strict=True))
    assert all(count[1] <= right[1] + 1e-9 for count, right in pairwise(order))


@given(LEFTS, SHARES)
def test_all_weigh_the_same_while_ended_rows_are_replaced(
    tokens_left: list[int], own_share: float
) -> None:
    assert token_weights(tokens_left, 1.0, own_share) == [1.0] * len(tokens_left)


def test_a_place_taken_again_and_again_is_expected_to_be() -> None:
    occupancy = Occupancy()
    assert occupancy.share(waiting=1) == 1.0
    assert occupancy.share(waiting=0) == 0.0
    for _ in range(100):
        occupancy.ended(running=7)
        occupancy.started()
    assert occupancy.share(waiting=0) > 0.95


def test_one_wave_after_another_takes_no_places() -> None:
    occupancy = Occupancy()
    for _ in range(10):
        for _ in range(8):
            occupancy.started()
        for running in reversed(range(8)):
            occupancy.ended(running)
    assert occupancy.share(waiting=0) == 0.0


def test_the_choose_nodes_prefers_the_row_that_is_behind() -> None:
    ahead, behind = CandidateNodes([0.9], 1, weight=0.5), CandidateNodes([0.6], 1, weight=1.5)
    outcome = choose_nodes([ahead, behind], 2, [1.0, 1.3, 1.9])
    assert outcome.nodes == [[], [0]]
    assert outcome.saved_ms[0] == 0.0
    # 0.6 tokens at 1.5 times (1.3 ms for 2.9 tokens), less 0.3 ms of verification
    assert math.isclose(outcome.saved_ms[1], 0.9 * 1.3 / 2.9 - 0.3)
