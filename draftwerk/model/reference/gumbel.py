"""The Gumbel noise of `speculative.sampling` over tensors of tokens, on any device."""

from collections.abc import Iterable

import torch
from torch import Tensor

from draftwerk.speculative.sampling import MASK, MULTIPLIERS, ROUNDS, WEYL


def noise_keys(asked: Iterable[tuple[int, int, int]], device: torch.device) -> Tensor:
    """Return int64 [R, 4] for (seed, branch, position): what is common to one row's noise."""
    rows = [(seed & MASK, seed >> 32 & MASK, position, branch) for seed, branch, position in asked]
    return torch.tensor(rows, dtype=torch.int64, device=device)


def gumbel(tokens: Tensor, rows: Tensor, keys: Tensor) -> Tensor:
    """Return float64 noise [n] of int64 tokens [n], each under the key of its row."""
    # Four neighbouring tokens share a counter, and neighbours mostly come together.
    counters, inverse = torch.unique_consecutive(rows << 32 | tokens // 4, return_inverse=True)
    words = torch.stack(_philox(counters & MASK, *keys[counters >> 32].T), dim=-1)
    return _noise(words[inverse, tokens % 4])


def noise_of(tokens: Tensor, keys: Tensor) -> Tensor:
    """Return the same of int64 tokens [R, n] under keys [R, 4], with no number read back."""
    words = torch.stack(_philox(tokens // 4, *keys[:, :, None].unbind(1)), dim=-1)
    return _noise(words.gather(-1, (tokens % 4)[..., None])[..., 0])


def _noise(word: Tensor) -> Tensor:
    return -torch.log(-torch.log((word.double() + 0.5) * 2.0**-32))


def _philox(
    token: Tensor, k0: Tensor, k1: Tensor, position: Tensor, branch: Tensor
) -> list[Tensor]:
    """Return the four words of counters (token, position, branch, 0), 32 bits in an int64 each.

    Products wrap modulo 2**64 as two's complement does, so masking after the shift is enough.
    """
    c0, c1, c2, c3 = token, position, branch, torch.zeros_like(token)
    for _ in range(ROUNDS):
        product0, product1 = MULTIPLIERS[0] * c0, MULTIPLIERS[1] * c2
        c0, c1 = (product1 >> 32 & MASK) ^ c1 ^ k0, product1 & MASK
        c2, c3 = (product0 >> 32 & MASK) ^ c3 ^ k1, product0 & MASK
        k0, k1 = k0 + WEYL[0] & MASK, k1 + WEYL[1] & MASK
    return [c0, c1, c2, c3]
