"""A GGUF's blocks, arranged and read by kernels, against gguf's own library."""

import numpy as np
import pytest
import torch
from torch import Tensor

from draftwerk.model.checkpoint.gguf_tensors import plain_values
from draftwerk.model.checkpoint.stored_matrix import StoredMatrix
from draftwerk.model.gpu.kernels.gguf_blocks import FORMATS, arranged
from tests.model.gpu.support.device import DEVICE, HALF
from tests.support.runners import FP32
from tests.support.stored_twin import INPUTS, random_blocks

pytest.importorskip("triton", reason="Triton is not installed")

from draftwerk.model.gpu.kernels import gguf_blocks
from draftwerk.model.gpu.kernels.weight_only import product
from draftwerk.model.gpu.kernels.widening import dequantised

BITS = {
    **{"Q2_K": 5.125, "Q3_K": 4.5625, "IQ4_NL": 8.5, "IQ4_XS": 8.3125, "MXFP4": 9},
    **{"G4_32": 6, "G4_128": 6, "G8_128": 9},
}
"""A weight, of types that are arranged in wider planes than theirs."""


def drawn(kind: str, rows: int, columns: int) -> StoredMatrix:
    """Return any blocks; every second row is taken, in falling order."""
    data = random_blocks(kind, 2 * rows, columns)
    return StoredMatrix(kind, (rows, columns), data, np.arange(2 * rows - 1, 0, -2))


def values(count: int, columns: int) -> Tensor:
    generator = torch.Generator().manual_seed(2)
    return torch.randn(count, columns, generator=generator).to(DEVICE)


@pytest.mark.parametrize("kind", FORMATS)
def test_arranged_blocks_stand_for_what_the_file_says(kind: str):
    """To the bit, by the twin and by the kernel, all rows and some."""
    matrix = drawn(kind, 37, 512)
    found, expected = arranged(matrix, DEVICE), plain_values(matrix).to(DEVICE)
    assert torch.equal(found.dequantised(FP32), expected)
    assert torch.equal(dequantised(found, FP32), expected)
    some = torch.tensor([36, 0, 5, 5], dtype=torch.int32, device=DEVICE)
    assert torch.equal(dequantised(found, HALF, some), expected[some.long()].to(HALF))


@pytest.mark.parametrize("kind", [kind for kind in FORMATS if INPUTS[kind] == 32])
def test_a_row_need_not_fill_the_units(kind: str):
    matrix = drawn(kind, 9, 96)
    found, expected = arranged(matrix, DEVICE), plain_values(matrix).to(DEVICE)
    assert torch.equal(dequantised(found, FP32), expected)
    given = values(3, 96)
    torch.testing.assert_close(product(given, found, 16), given @ expected.T, atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize(("count", "height"), [(3, 16), (20, 64)])
def test_products_are_those_of_the_dequantised_weights(kind: str, count: int, height: int):
    matrix = drawn(kind, 40, 768)
    given = values(count, 768)
    expected = given @ plain_values(matrix).to(DEVICE).T
    found = product(given, arranged(matrix, DEVICE), height)
    torch.testing.assert_close(found, expected, atol=1e-4 * expected.abs().max(), rtol=1e-4)


@pytest.mark.parametrize("kind", FORMATS)
def test_no_more_is_read_than_the_file_has_and_a_fortieth(kind: str):
    matrix = drawn(kind, 4, 2048)
    held = matrix.data.nbytes / 2
    most = 4 * 2048 * BITS[kind] / 8 if kind in BITS else held * 1.04
    assert held <= arranged(matrix, DEVICE).byte_count <= most


def test_rows_arranged_a_few_at_a_time_are_the_same(monkeypatch: pytest.MonkeyPatch):
    matrix = drawn("Q5_K", 11, 256)
    whole = arranged(matrix, DEVICE)
    monkeypatch.setattr(gguf_blocks, "NUMBERS_AT_ONCE", 4 * 256)
    parts = arranged(matrix, DEVICE)
    for found, expected in zip(parts.tensors, whole.tensors, strict=True):
        assert found is expected is None or torch.equal(found, expected)
