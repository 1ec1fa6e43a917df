"""Sizes of rounds, chosen for machines of several shapes."""

from hypothesis import given
from hypothesis import strategies as st

from draftwerk.speculative.costs.step_cost import StepCost
from draftwerk.speculative.scheduler.rounds.round_sizes import (
    NEAR_LEAST,
    ROWS_ALWAYS,
    ROWS_MAX,
    ROWS_MIN,
    TEXT_TOKENS,
    TOKENS_MAX,
    TOKENS_MIN,
    knee_tokens,
    rows_of,
    tokens_of,
)

SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)


def curve(read_ms: float, token_ms: float) -> StepCost:
    """Return what steps cost that read the weights once, while products wait for them."""
    return StepCost(tuple((tokens, max(read_ms, token_ms * tokens)) for tokens in SIZES))


TWO_CORES = curve(read_ms=10.0, token_ms=0.4)
SIXTEEN_CORES = curve(read_ms=5.0, token_ms=0.015)


def test_machines_of_three_shapes_choose_different_sizes() -> None:
    cache, small_cache = 200 * TEXT_TOKENS, 50 * TEXT_TOKENS
    found = [
        (rows := rows_of(cost, tokens), tokens_of(cost, rows))
        for cost, tokens in (
            (TWO_CORES, cache),
            (TWO_CORES, small_cache),
            (SIXTEEN_CORES, 8 * cache),
        )
    ]
    assert found == [(ROWS_ALWAYS, TOKENS_MIN), (50, TOKENS_MIN), (512, 1024)]


def test_a_tiny_cache_has_a_few_rows_nevertheless() -> None:
    assert rows_of(TWO_CORES, 16) == ROWS_MIN


def test_many_texts_decode_at_once_wherever_memory_allows() -> None:
    for read_ms, token_ms in ((200.0, 40.0), (10.0, 0.4), (1.0, 0.001)):
        assert rows_of(curve(read_ms, token_ms), ROWS_ALWAYS * TEXT_TOKENS) == ROWS_ALWAYS


@given(read_ms=st.floats(0.1, 100.0), token_ms=st.floats(0.001, 50.0))
def test_the_knee_is_the_smallest_size_that_is_nearly_the_best(
    read_ms: float, token_ms: float
) -> None:
    cost = curve(read_ms, token_ms)
    knee = knee_tokens(cost)
    table = cost.table(TOKENS_MAX)
    least = min(table[size] / size for size in range(64, TOKENS_MAX + 1, 64))
    assert table[knee] / knee <= NEAR_LEAST * least * (1 + 1e-9)
    assert all(table[size] / size > NEAR_LEAST * least for size in range(64, knee, 64))


@given(
    read_ms=st.floats(0.1, 100.0),
    token_ms=st.floats(0.001, 50.0),
    cache=st.integers(1, 10**7),
)
def test_every_row_has_room_in_a_round(read_ms: float, token_ms: float, cache: int) -> None:
    cost = curve(read_ms, token_ms)
    rows = rows_of(cost, cache)
    assert ROWS_MIN <= rows <= ROWS_MAX
    assert rows * TEXT_TOKENS <= max(cache, ROWS_MIN * TEXT_TOKENS)
    assert 2 * rows <= tokens_of(cost, rows) <= TOKENS_MAX
