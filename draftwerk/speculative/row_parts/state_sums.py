"""Sums of hidden states in fixed point, where the order of additions does not matter.

A prompt is read in chunks whose sizes depend on what else runs; the sum over its tokens must not.
"""

from array import array
from operator import add

FRACTION_BITS = 28
"""Bits behind the point: below the resolution of a float32 for all numbers above 1 / 16."""
STATE_MAX = 2.0**15
"""A state's largest number: so the sum over 2 ** 20 tokens still fits into 64 bits."""
LONG = "q"
"""64-bit integers, in this machine's order of bytes."""


def joined_sums(first: bytes, then: bytes) -> bytes:
    """Return the sum of two sums; an empty one is nothing."""
    if not (first and then):
        return first or then
    return array(LONG, map(add, array(LONG, first), array(LONG, then))).tobytes()


def summed(state_sum: bytes) -> list[float]:
    """Return the numbers of a sum."""
    unit = 2.0**-FRACTION_BITS
    return [number * unit for number in array(LONG, state_sum)]
