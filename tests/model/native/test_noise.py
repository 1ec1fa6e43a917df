"""The native noise is the plain noise, to the last bit."""

from hypothesis import given, settings
from hypothesis import strategies as st

from draftwerk.model.native.gumbel import fastest, gumbels
from draftwerk.model.native.pool import Pool
from draftwerk.speculative.sources import sequence_noise as noise


@settings(max_examples=60, deadline=None)
@given(
    st.integers(-(2**63), 2**64 - 1),
    st.integers(0, 5),
    st.integers(0, 10_000),
    st.lists(st.integers(0, 200_000), max_size=20),
)
def test_the_native_noise_is_the_plain_one(
    pool: Pool, seed: int, branch: int, position: int, tokens: list[int]
) -> None:
    assert pool is not None  # skips where the kernels cannot run
    expected = noise.gumbels(seed, branch, position, tokens)
    assert gumbels(seed, branch, position, tokens) == expected


def test_the_fastest_noise_is_the_native_one_where_it_runs(pool: Pool) -> None:
    assert pool is not None
    assert fastest() is gumbels
