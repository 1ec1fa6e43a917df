"""Sums in fixed point: whatever the order and the chunks, the same bits."""

from array import array
from random import Random

from draftwerk.speculative.row_parts.state_sums import (
    FRACTION_BITS,
    LONG,
    STATE_MAX,
    joined_sums,
    summed,
)


def fixed(*numbers: float) -> bytes:
    return array(LONG, [round(number * 2**FRACTION_BITS) for number in numbers]).tobytes()


def test_the_order_of_additions_does_not_matter() -> None:
    rng = Random(1)
    states = [fixed(*(rng.gauss(0, 10) for _ in range(5))) for _ in range(40)]
    sums: set[bytes] = set()
    for _ in range(10):
        rng.shuffle(states)
        cut = rng.randrange(40)
        halves = [b"", b""]
        for place, state in enumerate(states):
            halves[place < cut] = joined_sums(halves[place < cut], state)
        sums.add(joined_sums(*halves))
    assert len(sums) == 1


def test_an_empty_sum_is_nothing() -> None:
    assert joined_sums(b"", fixed(1.5)) == joined_sums(fixed(1.5), b"") == fixed(1.5)
    assert joined_sums(b"", b"") == b""


def test_the_largest_states_of_a_long_text_fit() -> None:
    most = fixed(STATE_MAX, -STATE_MAX)
    for _ in range(19):
        most = joined_sums(most, most)
    assert summed(most) == [STATE_MAX * 2**19, -STATE_MAX * 2**19]
