"""Weights of few bits: what a block keeps, and the kernels against their twins."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from draftwerk.model.attention.reference import attend
from draftwerk.model.batch.builder import BatchBuilder
from draftwerk.model.checkpoint.loader import load
from draftwerk.model.gpu.kernels.quantised import BLOCK, by_rows, to_int4, to_int8
from draftwerk.model.reference.forward import TorchForward
from draftwerk.model.reference.kv_pages import allocate
from draftwerk.speculative.rounds import NO_DRAFT
from tests.model.gpu.support.device import DEVICE, HALF, random
from tests.support.pairwise import named, pairwise
from tests.support.runners import FP32
from tests.support.tiny_models import save_tiny

pytest.importorskip("triton", reason="Triton is not installed")

from draftwerk.model.gpu.build import GpuSettings, gpu_parts
from draftwerk.model.gpu.kernels.weight_only import FEW_ROWS, product, split_of, weight_only
from draftwerk.model.gpu.kernels.widening import dequantised

QUANTISERS = {"int8": to_int8, "int4": to_int4}
SHAPES = {"one part": (40, 128), "a tail": (131, 50), "many parts": (24, 1200)}


def relative_error(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).norm() / expected.norm())


def test_int8_is_within_half_a_step():
    weight = random(1, 7, 96)
    found = to_int8(weight).dequantised(FP32)
    blocks = weight.view(7, -1, BLOCK).abs().amax(-1).repeat_interleave(BLOCK, dim=1)
    # Half a step of 1 / 127, and the scale's own rounding to eleven bits.
    assert ((found - weight).abs() <= blocks * (0.5 / 127 + 2**-11)).all()


def test_int4_is_never_worse_than_the_grid_from_least_to_greatest():
    weight = random(2, 50, 320)
    blocks = weight.view(50, -1, BLOCK)
    low, high = blocks.amin(-1, keepdim=True), blocks.amax(-1, keepdim=True)
    scale, low = ((high - low) / 15).half().float(), low.half().float()
    plain = (((blocks - low) / scale).round().clamp(0, 15) * scale + low).view_as(weight)
    found = to_int4(weight).dequantised(FP32)
    assert relative_error(found, weight) < relative_error(plain, weight)


def test_int4_gives_back_q4_1_weights_exactly():
    codes = torch.randint(0, 16, (9, 4, BLOCK), generator=torch.Generator().manual_seed(3))
    codes[..., 0], codes[..., 1] = 0, 15
    scale, low = random(4, 9, 4, 1).abs().half().cpu() / 8, random(5, 9, 4, 1).half().cpu()
    weight = (codes * scale.float() + low.float()).flatten(1).to(DEVICE)
    torch.testing.assert_close(to_int4(weight).dequantised(FP32), weight, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("quantise", QUANTISERS.values(), ids=QUANTISERS)
def test_a_block_of_equal_columns_is_kept(quantise):
    weight = torch.full((3, 64), 0.5, device=DEVICE)
    weight[1] = 0.0
    torch.testing.assert_close(quantise(weight).dequantised(FP32), weight, atol=2e-4, rtol=0)


@pytest.mark.parametrize("quantise", QUANTISERS.values(), ids=QUANTISERS)
def test_rows_quantised_a_few_at_a_time_are_the_same(quantise):
    weight = random(19, 11, 96)
    whole, parts = quantise(weight), by_rows(quantise, weight, row_count=4)
    assert parts.columns == whole.columns
    for found, expected in zip(parts[:3], whole[:3], strict=True):
        assert found is expected is None or torch.equal(found, expected)


def test_what_is_read_is_counted():
    assert to_int8(random(6, 10, 64)).byte_count == 10 * 2 * (32 + 2)
    assert to_int4(random(6, 10, 64)).byte_count == 10 * 2 * (16 + 4)


@pairwise(quantise=QUANTISERS, shape=SHAPES, rows=named((1, 16), (7, 16), (21, 16), (5, 64)))
def test_products_agree_with_the_twin(quantise, shape, rows: tuple[int, int]):
    """Of some rows, in tiles of some height."""
    count, height = rows
    weight, values = quantise(random(7, *shape)), random(8, count, shape[1])
    found = product(values, weight, height)
    torch.testing.assert_close(found, weight.product(values), atol=2e-4, rtol=1e-5)


@pytest.mark.parametrize("quantise", QUANTISERS.values(), ids=QUANTISERS)
def test_products_of_halves_stay_within_their_rounding(quantise):
    weight, values = quantise(random(9, 40, 192)), random(10, 5, 192).to(HALF)
    expected = weight.product(values.float())
    torch.testing.assert_close(product(values, weight, 16).float(), expected, atol=0.1, rtol=0.01)


@pytest.mark.parametrize("quantise", QUANTISERS.values(), ids=QUANTISERS)
@pytest.mark.parametrize("dtype", [FP32, HALF])
@pytest.mark.parametrize("shape", [(40, 192), (33, 50)])
def test_dequantised_equals_the_twin(quantise, dtype: torch.dtype, shape):
    weight = quantise(random(11, *shape))
    torch.testing.assert_close(dequantised(weight, dtype), weight.dequantised(dtype))


@pytest.mark.parametrize("quantise", QUANTISERS.values(), ids=QUANTISERS)
@pytest.mark.parametrize("exact", [False, True])
def test_few_rows_and_many_mean_the_same(quantise, exact: bool):
    weight, bias, values = random(12, 30, 64), random(13, 30), random(14, FEW_ROWS + 5, 64)
    made = weight_only(quantise, exact)(weight, bias)
    expected = quantise(weight).product(values) + bias
    torch.testing.assert_close(made(values), expected, atol=1e-4, rtol=1e-5)
    torch.testing.assert_close(made(values[:3]), expected[:3], atol=1e-4, rtol=1e-5)
    assert made(values[:0]).shape == (0, 30)


def test_in_exact_mode_a_row_has_its_bits_in_any_company():
    """In the interpreter, numbers whose products are exact; this tests how parts are put
    together."""
    weight, values = random(15, 20, 600), random(16, 70, 600)
    if DEVICE.type != "cuda":
        values = values.round()
    made = weight_only(to_int8, exact=True)(weight, None)
    together = made(values)
    for row in (0, 3, 69):
        assert torch.equal(made(values[row : row + 1])[0], together[row])


def test_columns_are_shared_out_by_the_matrix_alone():
    """The fewer the rows of weights, the more parts; all parts of one size but the last."""
    wide, narrow = to_int8(torch.zeros(4096, 2048)), to_int8(torch.zeros(128, 2048))
    assert split_of(wide, 4) == len(wide.codes)
    assert split_of(narrow, 4) == len(narrow.codes) // 8


@pytest.mark.parametrize(("quantise", "most"), [(to_int8, 0.007), (to_int4, 0.08)])
def test_products_stay_near_those_of_the_weights_in_float32(quantise, most: float):
    """Of normal weights: half a step of the block's span, over the square root of three."""
    weight, values = random(17, 200, 320), random(18, 8, 320)
    assert relative_error(product(values, quantise(weight), 16), values @ weight.T) < most


@pytest.mark.parametrize("dtype", QUANTISERS)
@pytest.mark.parametrize("exact", [False, True])
def test_logits_are_those_of_the_rounded_model(dtype: str, exact: bool, tmp_path: Path):
    """And with eight bits near the model's: in the spread of its own, for random weights."""
    save_tiny(tmp_path, "qwen2")
    model = load(str(tmp_path), FP32, DEVICE)
    settings = GpuSettings(dtype, "triton", exact, block_count=8, block_size=16)
    parts, _ = gpu_parts(model, settings, None)
    layout = BatchBuilder(16)
    layout.add(list(range(3, 33)), 0, (1, 4), NO_DRAFT, samples=True)
    layout.add([8], 0, (5,), NO_DRAFT, samples=True)

    def expected() -> Tensor:
        pages = allocate(model.config, 8, 16, FP32, DEVICE)
        return TorchForward(model.config, model.weights, attend)(layout.batch(DEVICE), pages)

    found, truth = parts.run(layout), expected()
    assert dtype == "int4" or 0.0 < float((found - truth).std() / truth.std()) < 0.05
    for layer in model.weights.layers:
        for name in ("qkv", "output", "gate_up", "down"):
            rounded = QUANTISERS[dtype](getattr(layer, name)).dequantised(FP32)
            setattr(layer, name, rounded)
    model.weights.lm_head = to_int8(model.weights.lm_head).dequantised(FP32)
    torch.testing.assert_close(found, expected(), atol=1e-4, rtol=1e-4)
