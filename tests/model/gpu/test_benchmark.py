"""The GPU benchmark reports where it cannot run, and its parts run at toy sizes."""

import subprocess
import sys

import pytest
import torch

from benchmarks.gpu.timing import GpuClock, GpuLimits, GpuPlace
from tests.model.gpu.support.device import DEVICE
from tests.support.runners import CPU, FP32

pytest.importorskip("triton", reason="Triton is not installed")

LIMITS = GpuLimits(bytes_s=1e12, flops=1e14)
AT = GpuPlace(DEVICE, FP32, None, GpuClock(DEVICE, 1), LIMITS)


def test_the_floor_is_whichever_takes_longer():
    assert LIMITS.floor_us(2e6) == pytest.approx(2.0)
    assert LIMITS.floor_us(2e6, flops=1e9) == pytest.approx(10.0)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_prints_the_reason():
    ended = subprocess.run(
        [sys.executable, "-m", "benchmarks.gpu", "kernels"],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert ended.returncode == 1
    assert "torch sees no GPU here; --smoke runs what can run" in ended.stderr


def test_steps_at_toy_sizes():
    from benchmarks.gpu.steps import SMOKE, shape_of_8b, step_rows
    from draftwerk.model.gpu.build import GpuSettings

    settings = GpuSettings("fp32", "triton", block_count=8, block_size=16)
    rows = step_rows(shape_of_8b(**SMOKE), settings, AT, [(2, 3, 20), (1, 24, 0)])
    assert [(row["rows"], row["length"]) for row in rows] == [(2, 3), (1, 24)]
    assert all(row["step_us"] > 0 and row["floor_us"] > 0 for row in rows)


def test_drafts_at_toy_sizes():
    from benchmarks.gpu.drafts import SMOKE_HEAD, chain_rows, head_rows
    from benchmarks.gpu.steps import SMOKE, shape_of_8b
    from draftwerk.model.gpu.build import GpuSettings

    settings = GpuSettings("fp32", "triton", block_count=8, block_size=16)
    config = shape_of_8b(**SMOKE)
    (chain,) = chain_rows(config, settings, AT, [(2, 3, 20)])
    assert (chain["rows"], chain["length"]) == (2, 3)
    assert min(chain[name] for name in ("chain_us", "by_token_us", "floor_us")) > 0
    heads = head_rows(config, AT, [1, 2], **SMOKE_HEAD)
    assert [row["rows"] for row in heads] == [1, 2]
    assert all(row["tree_us"] > 0 and row["floor_us"] > 0 for row in heads)


def test_attention_at_toy_sizes_agrees_with_the_reference():
    from benchmarks.gpu.kernels import SMOKE, attention_rows

    shapes = SMOKE._replace(rows=(2,))
    rows = attention_rows(shapes, AT)
    assert {(row["exact"], row["tree"]) for row in rows} >= {(False, True), (True, False)}
    assert all(row["error"] < 1e-5 for row in rows)


def test_products_of_few_bits_at_toy_sizes_agree_with_the_twins():
    from benchmarks.gpu.kernels import SMOKE, product_rows

    rows = product_rows(SMOKE, AT, [3])
    assert {row["kernel"].split()[-1] for row in rows} == {
        *("plain", "int8", "int4", "w8a8"),
        *("Q4_K", "Q6_K", "Q4_0"),
    }
    assert all(row["error"] < 1e-5 for row in rows)


@pytest.mark.parametrize(("dtype", "bits"), [("fp32", 32), ("int8", 8.5), ("int4", 5)])
def test_a_step_reads_the_weights_in_their_format(dtype: str, bits: float):
    from benchmarks.gpu.steps import SMOKE, random_model, shape_of_8b, weight_bytes

    model = random_model(shape_of_8b(**SMOKE), FP32, CPU)
    head_bits = 32 if dtype == "fp32" else 8.5
    layers = (8 * 16 + 64 + 2 * 96 + 96) * 64
    assert weight_bytes(model, dtype) == (layers * bits + 301 * 64 * head_bits) / 8
