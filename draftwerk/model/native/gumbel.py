"""The noise of many tokens at once, for draft sources; needs no torch."""

import ctypes
from collections.abc import Sequence

from draftwerk.model.native.build import NativeUnavailable
from draftwerk.model.native.library import library
from draftwerk.speculative.sources import sequence_noise
from draftwerk.speculative.sources.sequence_noise import Gumbels

SEED_MASK = 2**64 - 1


def fastest() -> Gumbels:
    """Return the fastest `sequence_noise.gumbels` that this machine runs."""
    try:
        library()
    except NativeUnavailable:
        return sequence_noise.gumbels
    return gumbels


def gumbels(seed: int, branch: int, position: int, tokens: Sequence[int]) -> list[float]:
    """Return the noise of several tokens at one position. Raises NativeUnavailable."""
    count = len(tokens)
    found = (ctypes.c_double * count)()
    wanted = (ctypes.c_uint32 * count)(*tokens)
    library().gumbel_many(seed & SEED_MASK, branch, position, wanted, count, found)
    return found[:]
