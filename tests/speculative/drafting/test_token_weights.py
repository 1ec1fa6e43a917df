"""The weight of a token of each row."""

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftwerk.speculative.drafting.budget import CandidateNodes, choose_nodes
from draftwerk.speculative.drafting.token_weights import token_weights
from draftwerk.speculative.load.occupancy import Occupancy

LEFTS = st.lists(st.integers(1, 5000), min_size=1, max_size=64)
SHARES = st.floats(0.0, 1.0)


def alike(own_share: float, count: int) -> list[float]:
    return [own_share / count] * count


@given(LEFTS, SHARES, SHARES, st.data())
def test_the_mean_is_one_and_no_weight_is_below_the_cost_it_takes_away(
    tokens_left: list[int], occupancy: float, own_share: float, data: st.DataObject
) -> None:
    count = len(tokens_left)
    parts = data.draw(st.lists(st.floats(0.001, 1.0), min_size=count, max_size=count))
    own = [own_share * part / sum(parts) for part in parts]
    found = token_weights(tokens_left, occupancy, own)
    assert math.isclose(sum(found), count)
    pairs = zip(found, own, strict=True)
    assert count == 1 or all(weight >= count * share - 1e-9 for weight, share in pairs)


@given(LEFTS, SHARES, SHARES)
def test_the_further_behind_the_more_weight(
    tokens_left: list[int], occupancy: float, own_share: float
) -> None:
    found = token_weights(tokens_left, occupancy, alike(own_share, len(tokens_left)))
    order = sorted(zip(tokens_left, found, strict=True))
    assert all(count[1] <= right[1] + 1e-9 for count, right in pairwise(order))


@given(LEFTS, SHARES)
def test_all_weigh_the_same_while_ended_rows_are_replaced(
    tokens_left: list[int], own_share: float
) -> None:
    found = token_weights(tokens_left, 1.0, alike(own_share, len(tokens_left)))
    assert all(math.isclose(weight, 1.0) for weight in found)


def test_a_row_that_costs_more_weighs_more() -> None:
    # Of a step, 0.4 is fixed: half of that for each row.
    assert token_weights([9, 9], 1.0, [0.5, 0.1]) == [
        pytest.approx(2 * (0.5 + 0.2)),
        pytest.approx(2 * (0.1 + 0.2)),
    ]


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
    share = outcome.share(behind, [0])
    assert math.isclose(share.gain, 0.6 * 1.5)
    assert math.isclose(share.ms, 0.3)
    # A round without it takes 1 ms for two tokens.
    assert math.isclose(outcome.token_ms(2, share), 0.5)
