"""The GPU benchmark says plainly where it cannot run, and its parts run at toy sizes."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from benchmarks.gpu.text import named
from benchmarks.gpu.timing import Clock, Limits
from model.loader import load
from tests.model.gpu.device import DEVICE
from tests.model.making import CPU, FP32
from tests.model.tiny import save_tiny

pytest.importorskip("triton", reason="Triton is not installed")

LIMITS = Limits(bytes_s=1e12, flops=1e14)


def test_the_floor_is_whichever_takes_longer():
    assert LIMITS.floor_us(2e6) == pytest.approx(2.0)
    assert LIMITS.floor_us(2e6, flops=1e9) == pytest.approx(10.0)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so():
    ended = subprocess.run(
        [sys.executable, "-m", "benchmarks.gpu", "kernels"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert ended.returncode == 1
    assert "torch sees no GPU here; --smoke runs what can run" in ended.stderr


def test_steps_at_toy_sizes():
    from benchmarks.gpu.steps import SMOKE, shape_of_8b, step_rows
    from model.gpu.build import GpuSettings

    settings = GpuSettings("fp32", "triton", block_count=8, block_size=16)
    place = shape_of_8b(**SMOKE), settings, DEVICE, FP32, None
    rows = step_rows(*place, Clock(DEVICE, 1), LIMITS, [(2, 3, 20), (1, 24, 0)])
    assert [(row["rows"], row["length"]) for row in rows] == [(2, 3), (1, 24)]
    assert all(row["step_us"] > 0 and row["floor_us"] > 0 for row in rows)


def test_attention_at_toy_sizes_agrees_with_the_reference():
    from benchmarks.gpu.kernels import SMOKE, attention_rows

    shapes = SMOKE._replace(rows=(2,))
    rows = attention_rows(shapes, DEVICE, FP32, Clock(DEVICE, 1), LIMITS)
    assert {(row["exact"], row["tree"]) for row in rows} >= {(False, True), (True, False)}
    assert all(row["error"] < 1e-5 for row in rows)


def test_products_of_few_bits_at_toy_sizes_agree_with_the_twins():
    from benchmarks.gpu.kernels import SMOKE, product_rows

    rows = product_rows(SMOKE, DEVICE, FP32, Clock(DEVICE, 1), LIMITS)
    assert {row["kernel"].split()[-1] for row in rows} == {"plain", "int8", "int4"}
    assert all(row["error"] < 1e-5 for row in rows)


@pytest.mark.parametrize(("dtype", "bits"), [("fp32", 32), ("int8", 8.5), ("int4", 5)])
def test_a_step_reads_the_weights_in_their_format(dtype: str, bits: float):
    from benchmarks.gpu.steps import SMOKE, random_model, shape_of_8b, weight_bytes

    model = random_model(shape_of_8b(**SMOKE), FP32, CPU)
    head_bits = 32 if dtype == "fp32" else 8.5
    layers = (8 * 16 + 64 + 2 * 96 + 96) * 64
    assert weight_bytes(model, dtype) == (layers * bits + 301 * 64 * head_bits) / 8


def test_a_written_checkpoint_holds_what_was_read(tmp_path: Path):
    save_tiny(tmp_path, "llama")
    model = load(str(tmp_path), FP32, CPU)
    written = named(model.config, model.weights)
    expected = load_file(tmp_path / "model.safetensors")
    assert written.keys() == expected.keys()
    assert all(torch.equal(written[name], expected[name]) for name in expected)
