"""The Gumbel noise of `speculative.noise` over tensors of tokens, on any device."""

import torch
from torch import Tensor

from speculative.noise import MASK, MULTIPLIERS, ROUNDS, WEYL


def gumbel(seed: int, branch: int, position: int, tokens: Tensor) -> Tensor:
    """Return float64 noise for int64 tokens of one position; same shape."""
    words = torch.stack(_philox(tokens // 4, position, branch, seed), dim=-1)
    word = words.gather(-1, (tokens % 4)[..., None])[..., 0]
    return -torch.log(-torch.log((word.double() + 0.5) * 2.0**-32))


def _philox(first: Tensor, second: int, third: int, seed: int) -> list[Tensor]:
    """Return the four words of counters (first, second, third, 0), each 32 bits in an int64.

    Products wrap modulo 2**64 as two's complement does, so masking after the shift is enough.
    """
    c0 = first
    c1, c2, c3 = (torch.full_like(first, word) for word in (second, third, 0))
    k0, k1 = seed & MASK, seed >> 32 & MASK
    for _ in range(ROUNDS):
        product0, product1 = MULTIPLIERS[0] * c0, MULTIPLIERS[1] * c2
        c0, c1 = (product1 >> 32 & MASK) ^ c1 ^ k0, product1 & MASK
        c2, c3 = (product0 >> 32 & MASK) ^ c3 ^ k1, product0 & MASK
        k0, k1 = k0 + WEYL[0] & MASK, k1 + WEYL[1] & MASK
    return [c0, c1, c2, c3]
