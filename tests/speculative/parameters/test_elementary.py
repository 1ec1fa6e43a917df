"""Logarithm and exponential are within a unit in the last place of the C library's."""

import math

from hypothesis import given
from hypothesis import strategies as st

from draftwerk.speculative.parameters.elementary import exp, log


@given(st.floats(min_value=5e-324, allow_infinity=False))
def test_logarithms_are_right_to_the_last_place(x: float) -> None:
    assert math.isclose(log(x), math.log(x), rel_tol=3e-16, abs_tol=1e-300)


@given(st.floats(-740.0, 700.0))
def test_exponentials_are_right_to_the_last_place(x: float) -> None:
    assert math.isclose(exp(x), math.exp(x), rel_tol=5e-16, abs_tol=5e-324)


def test_beyond_the_range_of_floats_they_end() -> None:
    assert exp(-1000.0) == 0.0 and exp(1000.0) == math.inf
    assert math.isnan(exp(math.nan)) and log(1.0) == 0.0 and exp(0.0) == 1.0
