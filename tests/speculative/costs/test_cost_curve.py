"""The curve of a step's cost goes through its points, and never falls."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from draftwerk.speculative.costs.cost_curve import drawn, with_prior

PRIORS = [(1.0, 1.0), (8.0, 2.0), (64.0, 9.0)]
POINTS = st.lists(
    st.tuples(st.floats(1.0, 64.0), st.floats(0.1, 50.0)), min_size=1, max_size=4
).map(sorted)


@given(POINTS)
def test_buckets_without_a_point_have_a_scaled_prior_and_none_falls(
    points: list[tuple[float, float]],
):
    found = with_prior(points, PRIORS)
    assert len(found) >= len(points)
    assert all(low <= high for (_, low), (_, high) in pairwise(found))


def test_without_points_the_priors_stand() -> None:
    assert with_prior([], PRIORS) == PRIORS


@given(POINTS, st.integers(1, 100))
def test_a_curve_has_a_value_for_each_size(points: list[tuple[float, float]], most: int) -> None:
    curve = drawn(with_prior(points, PRIORS), most)
    assert len(curve) >= most + 2
    assert all(low <= high + 1e-9 for low, high in pairwise(curve))


@given(POINTS, st.integers(1, 100))
def test_priors_that_are_left_out_change_nothing(
    points: list[tuple[float, float]], most: int
) -> None:
    short, whole = with_prior(points, PRIORS, most), with_prior(points, PRIORS)
    assert drawn(short, most)[: most + 1] == drawn(whole, most)[: most + 1]


def test_it_goes_through_its_points_and_straight_on() -> None:
    curve = drawn([(1.0, 1.0), (3.0, 5.0)], 5)
    assert curve == [1.0, 1.0, 3.0, 5.0, 7.0, 9.0, 11.0]
