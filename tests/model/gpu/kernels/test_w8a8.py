"""Products of signed bytes against the same sums in whole numbers."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from draftwerk.model.batch.builder import BatchBuilder
from draftwerk.model.checkpoint.loader import load
from draftwerk.speculative.rounds import NO_DRAFT
from tests.model.gpu.support.device import DEVICE, HALF, random
from tests.support.runners import FP32
from tests.support.tiny_models import save_tiny

pytest.importorskip("triton", reason="Triton is not installed")

from draftwerk.model.gpu.build import GpuSettings, gpu_parts
from draftwerk.model.gpu.kernels.w8a8 import by_row, byte_product, rounded, split_of, w8a8

SHAPES = {"one part": (40, 128), "a tail": (131, 50), "many parts": (24, 1200)}


def plain(tokens: Tensor, token_scales: Tensor, weights: Tensor, weight_scales: Tensor) -> Tensor:
    """Return the product, its sums in 64-bit integers."""
    sums = (tokens.cpu().long() @ weights.cpu().long().T).to(DEVICE)
    return sums.float() * token_scales[:, None] * weight_scales


@pytest.mark.parametrize("dtype", [FP32, HALF])
def test_tokens_are_rounded_as_the_twin_rounds(dtype: torch.dtype):
    values = random(1, 5, 300).to(dtype)
    values[2] = 0
    codes, scales = rounded(values)
    twin, twin_scales = by_row(values)
    torch.testing.assert_close(scales, twin_scales)
    assert (codes.int() - twin.int()).abs().max() <= (DEVICE.type == "cuda")
    assert codes[[0, 1, 3, 4]].abs().amax(1).eq(127).all() and not codes[2].any()
    off = (codes.float() * scales[:, None] - values.float()).abs()
    assert (off <= scales[:, None] * 0.501).all()


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("count", [1, 7, 150])
def test_products_are_the_sums_of_whole_numbers(shape: tuple[int, int], count: int):
    given = *by_row(random(2, count, shape[1])), *by_row(random(3, *shape))
    assert torch.equal(byte_product(*given, FP32), plain(*given))


def test_a_row_has_its_bits_in_any_company():
    """In tiles of other heights, and with the columns split otherwise."""
    made, values = w8a8(random(4, 20, 2300), random(5, 20)), random(6, 70, 2300)
    together = made(values)
    for row in (0, 3, 69):
        assert torch.equal(made(values[row : row + 1])[0], together[row])
    assert made(values[:0]).shape == (0, 20)
    splits = {split_of(count, 4096, 14_336, 128, 132) for count in (1, 512, 2048)}
    assert len(splits) > 1 and max(splits) >= 14_336


@pytest.mark.parametrize("exact", [False, True])
def test_logits_stay_near_the_models(exact: bool, tmp_path: Path):
    save_tiny(tmp_path, "qwen2")
    layout = BatchBuilder(16)
    layout.add(list(range(3, 33)), 0, (1, 4), NO_DRAFT, samples=True)
    layout.add([8], 0, (5,), NO_DRAFT, samples=True)
    found, truth = (
        gpu_parts(
            load(str(tmp_path), FP32, DEVICE),
            GpuSettings(dtype, "triton", exact, block_count=8, block_size=16),
            None,
        )[0].run(layout)
        for dtype in ("w8a8", "fp32")
    )
    assert 0.0 < float((found - truth).std() / truth.std()) < 0.05
