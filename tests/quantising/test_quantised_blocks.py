"""Blocks of every type: what gguf-py reads of them is near what was written."""

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray

from draftwerk.model.checkpoint.stored_matrix import GGUF_KINDS
from draftwerk_tools.quantising.quantised_blocks import quantised
from draftwerk_tools.quantising.searches import centred_scales, scales_and_minima
from tests.support import stored_twin as twin

LOSS = {
    "Q2_K": 0.36,
    "Q3_K": 0.19,
    "Q4_0": 0.115,
    "MXFP4": 0.135,
    "IQ4_NL": 0.095,
    "IQ4_XS": 0.095,
    "Q4_1": 0.095,
    "Q4_K": 0.088,
    "Q5_0": 0.058,
    "Q5_1": 0.047,
    "Q5_K": 0.045,
    "Q6_K": 0.024,
    "Q8_0": 0.008,
}
"""Of values like a model's (Student's t), the root mean square of errors over theirs."""


def values_like_weights(rows: int = 64, width: int = 1024, seed: int = 0) -> NDArray[np.float32]:
    generator = np.random.default_rng(seed)
    return (0.02 * generator.standard_t(5, (rows, width))).astype(np.float32)


def read_back(values: NDArray[np.float32], kind: str) -> NDArray[np.float32]:
    return gguf.dequantize(quantised(values, kind), gguf.GGMLQuantizationType[kind])


def test_every_served_type_can_be_written():
    assert GGUF_KINDS.keys() - {"F32", "F16", "BF16"} == LOSS.keys()


@pytest.mark.parametrize("kind", LOSS)
def test_errors_are_those_of_the_types_bits(kind: str):
    values = values_like_weights()
    found = read_back(values, kind)
    assert np.sqrt(np.square(found - values).mean() / np.square(values).mean()) < LOSS[kind]
    assert np.array_equal(found, twin.dequantise(kind, quantised(values, kind)))


@pytest.mark.parametrize("kind", LOSS)
def test_values_of_any_size(kind: str):
    """Zeros, one value in a block, equal values, signs alone, numbers below a half's least."""
    values = np.zeros((6, 512), np.float32)
    values[1, 3] = -1
    values[2] = 0.5
    values[3, ::2], values[3, 1::2] = -0.25, 0.25
    values[4] = 1e-30
    values[5, 100] = 300
    found = read_back(values, kind)
    assert np.isfinite(found).all()
    assert not found[0].any() and np.abs(found[4]).max() < 1e-6
    assert abs(found[1, 3] + 1) < 0.02 and abs(found[5, 100] - 300) < 90
    assert np.abs(found[2] - 0.5).max() < 0.1 and (np.sign(found[3]) == np.sign(values[3])).all()


@pytest.mark.parametrize("kind", sorted(LOSS.keys() - {"MXFP4"}))
def test_blocks_that_are_read_and_written_again_lose_little(kind: str):
    once = read_back(values_like_weights(), kind)
    again = read_back(once, kind)
    lost = np.sqrt(np.square(again - once).mean() / np.square(once).mean())
    assert lost < 0.5 * LOSS[kind]


def test_rows_are_blocks_of_their_own():
    values = values_like_weights(8)
    whole = quantised(values, "Q4_K")
    assert np.array_equal(quantised(values[5:6], "Q4_K")[0], whole[5])


def test_a_width_that_is_no_whole_blocks_is_refused():
    with pytest.raises(ValueError, match="rows of 288 are no whole blocks of Q4_K"):
        quantised(np.zeros((2, 288), np.float32), "Q4_K")


def test_a_search_is_better_than_its_first_try():
    blocks = values_like_weights().reshape(-1, 32).T.copy()

    def rounding(values: NDArray[np.float32]) -> NDArray[np.float32]:
        return np.clip(np.rint(values), -8, 7)

    def loss(scales: NDArray[np.float32]) -> float:
        return float(
            (np.square(blocks) * np.square(blocks - scales * rounding(blocks / scales))).sum()
        )

    tries = [-8 + 0.1 * step for step in range(-9, 10)]
    assert loss(centred_scales(blocks, tries, rounding)) < loss(
        centred_scales(blocks, [-8], rounding)
    )


def test_minima_are_never_below_zero():
    blocks = np.abs(values_like_weights()).reshape(-1, 32).T.copy()
    scales, minima = scales_and_minima(blocks, np.ones_like(blocks), 15, [-1, -0.5, 0, 0.5])
    assert not np.any(minima < 0) and np.all(scales > 0)
