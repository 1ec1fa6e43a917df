"""What a token of each row is worth."""

import math
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from draftwerk.speculative.drafting.budget import Bid, auction
from draftwerk.speculative.drafting.token_weights import Refill, worths

LEFTS = st.lists(st.integers(1, 5000), min_size=1, max_size=64)
SHARES = st.floats(0.0, 1.0)


@given(LEFTS, SHARES, SHARES)
def test_the_mean_is_one_and_nobody_is_worth_less_than_the_cost_it_takes_away(
    lefts: list[int], refill: float, own_share: float
) -> None:
    found = worths(lefts, refill, own_share)
    assert math.isclose(sum(found), len(lefts))
    assert all(worth >= min(own_share, 1.0) - 1e-9 for worth in found)


@given(LEFTS, SHARES, SHARES)
def test_the_further_behind_the_more_worth(
    lefts: list[int], refill: float, own_share: float
) -> None:
    order = sorted(zip(lefts, worths(lefts, refill, own_share), strict=True))
    assert all(left[1] <= right[1] + 1e-9 for left, right in pairwise(order))


@given(LEFTS, SHARES)
def test_all_are_worth_the_same_while_places_are_taken(lefts: list[int], own_share: float) -> None:
    assert worths(lefts, 1.0, own_share) == [1.0] * len(lefts)


def test_a_place_taken_again_and_again_is_expected_to_be() -> None:
    refill = Refill()
    assert refill.share(waiting=1) == 1.0
    assert refill.share(waiting=0) == 0.0
    for _ in range(100):
        refill.ended(running=7)
        refill.started()
    assert refill.share(waiting=0) > 0.95


def test_one_wave_after_another_takes_no_places() -> None:
    refill = Refill()
    for _ in range(10):
        for _ in range(8):
            refill.started()
        for running in reversed(range(8)):
            refill.ended(running)
    assert refill.share(waiting=0) == 0.0


def test_the_auction_prefers_the_row_that_is_behind() -> None:
    ahead, behind = Bid([0.9], 1, worth=0.5), Bid([0.6], 1, worth=1.5)
    outcome = auction([ahead, behind], 2, [1.0, 1.3, 1.9])
    assert outcome.nodes == [[], [0]]
    assert outcome.saved_ms[0] == 0.0
    # 0.6 tokens at 1.5 times (1.3 ms for 2.9 tokens), less 0.3 ms of verification
    assert math.isclose(outcome.saved_ms[1], 0.9 * 1.3 / 2.9 - 0.3)
