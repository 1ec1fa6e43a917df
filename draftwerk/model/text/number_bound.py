"""Where a number in JSON ends: its schema may let it have digits for ever, and no reader keeps so
many."""

from collections.abc import Collection, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

DIGITS_MAX = 24
"""In line; a double has 17 that mean something, the greatest integer of 64 bits 20."""
DIGITS = b"0123456789"
ENDS = b",]}<\n "
"""What follows a number in JSON, or in arguments that stand between tags."""
GOES_ON = b".eE"
NO_BYTE = -1
"""The byte of a token that is none of the text, or has no bytes."""


class NumberBound:
    """Takes the digits out of what may follow a long row of them, where a number may end."""

    def __init__(self, tokens: Sequence[bytes], specials: Collection[int], words: int) -> None:
        """`tokens` are the bytes of each, `words` the length of a mask."""
        first = np.array([token[0] if token else NO_BYTE for token in tokens], np.int16)
        first[list(specials)] = NO_BYTE
        self._digits = _mask(np.isin(first, [*DIGITS]), words)
        self._ends = _mask(np.isin(first, [*ENDS, NO_BYTE]), words)
        self._follows = self._ends | _mask(np.isin(first, [*GOES_ON]), words)
        self._tokens = tokens

    def bounded(self, mask: NDArray[np.int32], backwards: Iterable[int]) -> NDArray[np.int32]:
        """Return which tokens may follow; the tokens before come from the last to the first.

        Text in which a letter or a quote may stand is no number.
        """
        if not self._is_long(backwards):
            return mask
        others = mask & ~self._digits
        is_number = (others & self._ends).any() and not (others & ~self._follows).any()
        return others if is_number else mask

    def _is_long(self, backwards: Iterable[int]) -> bool:
        count = 0
        for token in backwards:
            data = self._tokens[token] if token < len(self._tokens) else b""
            own = len(data) - len(data.rstrip(DIGITS))
            count += own
            if count >= DIGITS_MAX:
                return True
            if own < len(data) or not data:
                return False
        return False


def _mask(bits: NDArray[np.bool_], words: int) -> NDArray[np.int32]:
    """Return bits as the library has them: 32 in a word, the lowest first."""
    packed = np.packbits(bits, bitorder="little")
    found = np.zeros(4 * words, np.uint8)
    found[: len(packed)] = packed
    return found.view(np.int32)
