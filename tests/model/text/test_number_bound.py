"""Where a number may end, it has no more digits than a reader keeps."""

import numpy as np

from draftwerk.model.text.number_bound import DIGITS_MAX, NumberBound

TOKENS = [b"1", b"23", b",", b"a", b"."]
ALL = np.array([0b11111], np.int32)
NUMBER = np.array([0b10111], np.int32)
"""Digits, a comma, a point: what may follow in a number."""


def bounded(mask: np.ndarray, text: list[int]) -> int:
    return int(NumberBound(TOKENS, (), 1).bounded(mask, reversed(text))[0])


def test_behind_a_long_row_of_digits_no_digit_follows() -> None:
    assert bounded(NUMBER, [0] * DIGITS_MAX) == 0b10100
    assert bounded(NUMBER, [1] * (DIGITS_MAX // 2)) == 0b10100


def test_a_short_row_and_a_text_with_letters_are_left_alone() -> None:
    assert bounded(NUMBER, [0] * (DIGITS_MAX - 1)) == 0b10111
    assert bounded(NUMBER, [0] * DIGITS_MAX + [2]) == 0b10111
    assert bounded(ALL, [0] * DIGITS_MAX) == 0b11111
