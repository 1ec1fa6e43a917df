"""The GPU benchmark reports where it cannot run, and its parts run at toy sizes."""

import subprocess
import sys

import pytest
import torch

from benchmarks.gpu.texts import DeviceText, Parting, TextCase, compared
from benchmarks.gpu.timing import GpuClock, GpuLimits, GpuPlace
from draftwerk.speculative.request import Options
from draftwerk.speculative.sampling import Sampling
from tests.model.gpu.support.device import DEVICE
from tests.support.runners import CPU, FP32

pytest.importorskip("triton", reason="Triton is not installed")

from benchmarks.gpu.steps import SMOKE, random_model, shape_of_8b, step_rows, weight_bytes
from draftwerk.model.gpu.build import GpuSettings

LIMITS = GpuLimits(bytes_s=1e12, flops=1e14)
AT = GpuPlace(DEVICE, FP32, None, GpuClock(DEVICE, 1), LIMITS)


def test_the_floor_is_whichever_takes_longer():
    assert LIMITS.floor_us(2e6) == pytest.approx(2.0)
    assert LIMITS.floor_us(2e6, flops=1e9) == pytest.approx(10.0)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_prints_the_reason():
    ended = subprocess.run(
        [sys.executable, "-m", "benchmarks.gpu", "steps"],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert ended.returncode == 1
    assert "torch sees no GPU here; --smoke runs what can run" in ended.stderr


def test_steps_at_toy_sizes():
    settings = GpuSettings("fp32", "triton", block_count=8, block_size=16)
    rows = [*step_rows(shape_of_8b(**SMOKE), settings, AT, [(2, 3, 20), (1, 24, 0)])]
    assert [(row["rows"], row["length"]) for row in rows] == [(2, 3), (1, 24)]
    assert all(row["step_us"] > 0 and row["floor_us"] > 0 for row in rows)


@pytest.mark.parametrize(("dtype", "bits"), [("fp32", 32), ("int8", 8.5), ("int4", 5)])
def test_a_step_reads_the_weights_in_their_format(dtype: str, bits: float):
    model = random_model(shape_of_8b(**SMOKE), FP32, CPU)
    head_bits = 32 if dtype == "fp32" else 8.5
    layers = (8 * 16 + 64 + 2 * 96 + 96) * 64
    assert weight_bytes(model, dtype) == (layers * bits + 301 * 64 * head_bits) / 8


def test_texts_that_part_at_a_tie_are_told_from_mistakes():
    case = TextCase("", Options(sampling=Sampling()))

    def text(plain: int, drafted: int) -> DeviceText:
        return DeviceText(case, {"plain": (plain,), "drafted": (drafted,), "together": (plain,)})

    assert compared([(text(1, 1), None), (text(2, 3), Parting(4, 0.001)), (text(2, 2), None)]) == {
        "texts": 3,
        "drafted_as_plain": 2,
        "together_as_plain": 3,
        "as_on_a_cpu": 2,
        "parted_at_a_tie": 1,
        "largest_margin": 0.001,
    }
    mistaken = compared([(text(1, 1), Parting(0, 2.5)), (text(1, 1), Parting(0, None))])
    assert (mistaken["parted_at_a_tie"], mistaken["largest_margin"]) == (0, 2.5)
