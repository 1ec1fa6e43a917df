"""Products in other formats against plain ones of what the format holds."""

import pytest
import torch

from draftwerk.model.batch.e4m3 import FP8
from draftwerk.model.gpu.kernels.products import dense, fp8, tiled, to_fp8
from tests.model.gpu.support.device import DEVICE

GENERATOR = torch.Generator().manual_seed(1)
WEIGHT = torch.randn(48, 64, generator=GENERATOR).to(DEVICE)
VALUES = torch.randn(7, 64, generator=GENERATOR).to(DEVICE)
BIAS = torch.randn(48, generator=GENERATOR).to(DEVICE)


def test_fp8_keeps_each_row_to_within_its_rounding():
    rounded, scales = to_fp8(WEIGHT)
    assert rounded.dtype == FP8
    restored = rounded.float() * scales
    largest = WEIGHT.abs().amax(dim=1, keepdim=True)
    # Three bits of mantissa: half a step of a sixteenth, and a floor far below the largest.
    assert ((restored - WEIGHT).abs() <= WEIGHT.abs() / 16 + largest / 2**10).all()


@pytest.mark.parametrize("bias", [None, BIAS], ids=["no bias", "bias"])
def test_fp8_multiplies_what_was_rounded(bias):
    weights, weight_scales = to_fp8(WEIGHT)
    tokens, token_scales = to_fp8(VALUES)
    expected = (tokens.float() * token_scales) @ (weights.float() * weight_scales).T
    if bias is not None:
        expected = expected + bias
    found = fp8(WEIGHT, bias)(VALUES)
    torch.testing.assert_close(found, expected, atol=0.1, rtol=2**-7)  # bfloat16 in between


def test_a_row_of_zeros_stays_zero():
    values = torch.zeros(2, 64, device=DEVICE)
    assert torch.equal(fp8(WEIGHT, None)(values), torch.zeros(2, 48, device=DEVICE))


@pytest.mark.parametrize("count", [1, 4, 9])
def test_tiles_have_one_height_whatever_the_rows(count):
    heights: list[int] = []

    def noting(weight, bias):
        inner = dense(weight, bias)

        def product(values):
            heights.append(len(values))
            return inner(values)

        return product

    values = VALUES.repeat(2, 1)[:count]
    found = tiled(noting, tile=4)(WEIGHT, BIAS)(values)
    torch.testing.assert_close(found, dense(WEIGHT, BIAS)(values))
    assert heights == [4] * -(-count // 4)
