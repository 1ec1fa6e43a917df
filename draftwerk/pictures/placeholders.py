"""Numbers that stand for positions of pictures in a prompt, and marks that stand for pictures.

A placeholder tells whose row of which picture it is, so the names of cached blocks tell pictures
apart, and nobody between tokenizer and model process needs to know of them.

    bit 62   61 ...................... 14   13 ............ 0
    1        the picture's key (48 bits)    the row's number
"""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from draftwerk.speculative.parameters.bounds import PLACEHOLDER_MIN

ROW_BITS = 14
ROWS_MAX = 2**ROW_BITS
"""Rows of a picture at most."""
KEY_DIGITS, NAME_DIGITS = 12, 32
"""Hexadecimal digits of a key, the last of a digest: 48 bits; and of a name, its first. Clients are
shown names alone, so that nobody can look for two pictures of one key."""
DIGEST_BYTES = (KEY_DIGITS + NAME_DIGITS) // 2
MARK = re.compile("\ue200([0-9a-f]{32})\ue201")
"""A picture in a text: characters for private use around its digest, which only who sent the
picture to this server could know."""

MARK_LENGTH = 34


class RowPlace(NamedTuple):
    """A row of a picture."""

    key: str
    row: int


def mark_of(digest: str) -> str:
    """Return what stands for a picture in a text."""
    return f"\ue200{digest[:NAME_DIGITS]}\ue201"


def key_of(digest: str) -> str:
    """Return the key of a picture."""
    return digest[-KEY_DIGITS:]


def placeholders(digest: str, count: int) -> Iterator[int]:
    """Return the numbers of a picture's rows."""
    first = PLACEHOLDER_MIN + (int(key_of(digest), 16) << ROW_BITS)
    return iter(range(first, first + count))


def place_of(placeholder: int) -> RowPlace:
    """Return the row that a placeholder stands for."""
    key, row = divmod(placeholder - PLACEHOLDER_MIN, ROWS_MAX)
    return RowPlace(f"{key:0{KEY_DIGITS}x}", row)


def without_placeholders(tokens: Sequence[int], picture_id: int) -> Sequence[int]:
    """Return tokens with a picture's token in the place of each placeholder."""
    if max(tokens, default=0) < PLACEHOLDER_MIN:
        return tokens
    return [picture_id if token >= PLACEHOLDER_MIN else token for token in tokens]
