"""Blocks of groups have the values of what they were made of."""

import numpy as np
import pytest

from draftwerk.model.checkpoint.quantised.group_blocks import (
    block_values,
    byte_blocks,
    check_numbers,
    fp4_blocks,
    nibble_blocks,
)
from draftwerk.model.checkpoint.unsupported import Refused

RNG = np.random.default_rng(1)
SCALES = np.array([[0.5, 2.0], [0.25, 4.0]], np.float32)


def test_signed_bytes_come_back_times_their_scale() -> None:
    values = RNG.integers(-128, 128, (2, 64), np.int8)
    blocks = byte_blocks(values.view(np.uint8), SCALES, 32)
    wanted = values.astype(np.float32) * np.repeat(SCALES, 32, axis=1)
    assert np.array_equal(block_values("G8_32", blocks), wanted)


def test_nibbles_come_back_less_their_zero() -> None:
    nibbles = RNG.integers(0, 16, (2, 64), np.uint8)
    zeros = np.array([[8, 3], [0, 15]], np.uint8)
    pairs = nibbles[:, 0::2] | nibbles[:, 1::2] << 4
    blocks = nibble_blocks("w", pairs, SCALES, zeros, 32)
    spread = np.repeat(zeros, 32, axis=1).astype(np.float32)
    wanted = (nibbles.astype(np.float32) - spread) * np.repeat(SCALES, 32, axis=1)
    assert np.array_equal(block_values("G4_32", blocks), wanted)


def test_scales_with_more_digits_are_refused_by_name() -> None:
    scales = np.full((1, 1), 1.0 + 2.0**-20, np.float32)
    with pytest.raises(Refused, match="layer: its scales have more digits"):
        nibble_blocks("layer", np.zeros((1, 16), np.uint8), scales, np.zeros((1, 1), np.uint8), 32)


def test_what_is_no_number_is_refused_by_name() -> None:
    check_numbers("layer", np.array([0x7E, 0xFE], np.uint8))
    for code in (0x7F, 0xFF):
        with pytest.raises(Refused, match="layer: a weight is no number"):
            check_numbers("layer", np.array([0, code], np.uint8))
    with pytest.raises(Refused, match="layer: a scale is no number"):
        fp4_blocks("layer", np.zeros((1, 1, 16), np.uint8), np.array([[0xFF]], np.uint8))
