"""Gumbel noise from a counter: the same (seed, branch, position, token) gives the same number.

Philox 4x32-10 (Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011)
with key = seed and counter = (token // 4, position, branch, 0); word `token % 4` is the token's.
"""

from array import array
from collections.abc import Callable, Sequence
from functools import lru_cache
from zlib import crc32

from draftwerk.speculative.parameters.elementary import log

MASK = 0xFFFF_FFFF
MULTIPLIERS = (0xD251_1F53, 0xCD9E_8D57)
WEYL = (0x9E37_79B9, 0xBB67_AE85)
ROUNDS = 10


@lru_cache(maxsize=4096)  # four tokens share a counter
def philox(counter: tuple[int, int, int, int], seed: int) -> tuple[int, int, int, int]:
    """Return the four 32-bit words of one counter under a 64-bit key."""
    c0, c1, c2, c3 = counter
    k0, k1 = seed & MASK, seed >> 32 & MASK
    for _ in range(ROUNDS):
        product0, product1 = MULTIPLIERS[0] * c0, MULTIPLIERS[1] * c2
        c0, c1, c2, c3 = (
            product1 >> 32 ^ c1 ^ k0,
            product1 & MASK,
            product0 >> 32 ^ c3 ^ k1,
            product0 & MASK,
        )
        k0, k1 = k0 + WEYL[0] & MASK, k1 + WEYL[1] & MASK
    return c0, c1, c2, c3


def uniform(seed: int, branch: int, position: int, token: int) -> float:
    """Return a number strictly inside (0, 1), one of 2**32 evenly spaced ones."""
    word = philox((token // 4, position, branch, 0), seed)[token % 4]
    # Half a step from both ends: neither logarithm may be infinite.
    return (word + 0.5) * 2.0**-32


def gumbel(seed: int, branch: int, position: int, token: int) -> float:
    """Return the noise that is added to the token's log-probability before the argmax."""
    # `log` is not the C library's, whose last bit differs between machines.
    return -log(-log(uniform(seed, branch, position, token)))


def path_key(tokens: Sequence[int]) -> int:
    """Return the `branch` under which a beam search draws what follows these generated tokens.

    Texts of one length draw apart unless their sums agree, one pair in 2**32.
    """
    return crc32(array("i", tokens))


Gumbels = Callable[[int, int, int, Sequence[int]], list[float]]
"""(seed, branch, position, tokens) to the noise of each token; a model may bring a faster one."""


def gumbels(seed: int, branch: int, position: int, tokens: Sequence[int]) -> list[float]:
    """Return the noise of several tokens at one position: `gumbel` of each, unrolled for speed."""
    by_0, by_2 = MULTIPLIERS
    k0, k1 = seed & MASK, seed >> 32 & MASK
    # The same for all tokens, which differ in their counters.
    keys = [(k0 + n * WEYL[0] & MASK, k1 + n * WEYL[1] & MASK) for n in range(ROUNDS)]
    noise: list[float] = []
    for token in tokens:
        c0, c1, c2, c3 = token >> 2, position, branch, 0
        for key0, key1 in keys:
            product0, product2 = by_0 * c0, by_2 * c2
            c0, c2 = product2 >> 32 ^ c1 ^ key0, product0 >> 32 ^ c3 ^ key1
            c1, c3 = product2 & MASK, product0 & MASK
        noise.append(-log(-log(((c0, c1, c2, c3)[token & 3] + 0.5) * 2.0**-32)))
    return noise
