"""Vectors of length 1, their bytes, and how relevance follows from two log-probabilities."""

from array import array
from math import exp, sqrt

import pytest

from draftwerk.api.responses.vectors import relevance_of, vector_of
from draftwerk.speculative.requests.pooling import PoolingOutput
from draftwerk.speculative.row_parts.state_sums import FRACTION_BITS, LONG


def read(*numbers: float) -> PoolingOutput:
    fixed = [round(number * 2**FRACTION_BITS) for number in numbers]
    return PoolingOutput(state_sum=array(LONG, fixed).tobytes())


def test_a_sum_has_the_direction_of_its_mean() -> None:
    assert vector_of(read(1.5, 2.5)) == vector_of(read(6.0, 10.0))


def test_a_state_of_zeros_stays_one() -> None:
    assert list(vector_of(read(0.0, 0.0))) == [0.0, 0.0]


def test_relevance_is_what_yes_has_of_yes_and_no() -> None:
    assert relevance_of(PoolingOutput(answers=(-1.0, -1.0))) == 0.5
    for yes, no in ((-0.1, -3.0), (-9.0, -0.5), (-900.0, -0.1)):
        wanted = exp(yes) / (exp(yes) + exp(no))
        assert relevance_of(PoolingOutput(answers=(yes, no))) == pytest.approx(wanted, abs=1e-12)
    assert sqrt(relevance_of(PoolingOutput(answers=(-0.1, -900.0)))) == 1.0
